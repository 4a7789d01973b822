"""Replaces the broker addresses in a response; every other byte stays as it is. Pure.

A response is walked, not decoded, up to the last field that may hold an address (in Metadata these are the brokers, far
in front of the partitions). The steps are generated from the wire declarations once for each version. Unknown tagged
fields stay where they are, and records are skipped as a whole.

A Fetch or Produce response names brokers at its very end, and only beside an error: `surely_names_none` recognises the
others.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from anabranch.protocol.compiler import is_flexible
from anabranch.protocol.decoder_source import skip_tags
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.registry import BY_KEY, Api
from anabranch.protocol.varint import decode_uvarint, encode_uvarint
from anabranch.protocol.wire import Kind, WireField, fields_of

NAMING: Final = {0: 10, 1: 16, 3: 0, 10: 0, 60: 0, 78: 0, 79: 0}
"""API key -> the first version whose answers name brokers: Produce, Fetch, Metadata, FindCoordinator, DescribeCluster,
ShareFetch, ShareAcknowledge."""
AT_THE_END: Final = (0, 1)
NODE_IDS: Final = ("node_id", "broker_id")
NO_ADDRESS: Final = -1
WIDTHS: Final = {Kind.BOOLEAN: 1, Kind.INT8: 1, Kind.INT16: 2, Kind.UINT16: 2, Kind.INT32: 4, Kind.UINT32: 4} | {
    Kind.INT64: 8,
    Kind.FLOAT64: 8,
    Kind.UUID: 16,
}

_int16 = struct.Struct(">h")
_int32 = struct.Struct(">i")


class Address(NamedTuple):
    """The address of a broker in a response."""

    node_id: int
    host: str
    port: int
    start: int
    """The offset of the host's length."""
    end: int
    """The offset behind the port."""

    @property
    def is_one(self) -> bool:
        """Whether the address is real: an error response has an empty one."""
        return self.port > 0 and bool(self.host)


class TagSize(NamedTuple):
    """The size of a tagged field that holds addresses."""

    start: int
    end: int
    """The offset of the field."""
    size: int


class Found:
    """The result of a walk."""

    def __init__(self, frame: bytes) -> None:
        self.frame = frame
        self.node_id = NO_ADDRESS
        """The last node id that was read: it belongs to the next address."""
        self.addresses: list[Address] = []
        self.tags: list[TagSize] = []


Step = Callable[[Found, int], int]
"""Advances from one offset to the next."""


def names_brokers(key: int, version: int) -> bool:
    """Whether responses of this version may name brokers."""
    return version >= NAMING.get(key, version + 1)


def surely_names_none(key: int, frame: bytes) -> bool:
    """Whether the end of a response proves that it names no broker.

    A response with brokers ends with a port, a rack and an empty list of tagged fields; one without ends with three
    empty lists, of the partition, the topic and the whole. They end alike only if the rack is null, so that the second
    last byte is zero, and the last byte of the port is, too.
    """
    if key not in AT_THE_END or not frame.endswith(b"\0\0\0"):
        return False
    return frame[-6:-4] != b"\0\0" or frame[-4] == 0


def addresses_in(frame: bytes, key: int, version: int) -> Found:
    """Find the brokers that a response (without its length) names. Raises DecodeError."""
    api = BY_KEY[key]
    found = Found(frame)
    try:
        position = 4
        if api.response_header_version(version):
            position = skip_tags(frame, position)[0]
        for step in _steps(api, version):
            position = step(found, position)
        if position > len(frame):
            raise IndexError
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise DecodeError("is truncated, or not UTF-8", path=f"{api.name} v{version}", buffer=frame) from error
    return found


def replace(found: Found, others: Sequence[tuple[str, int]], version: int, key: int) -> bytes:
    """Replace host and port of each address, in order."""
    flexible = is_flexible(BY_KEY[key].response, version)
    frame = found.frame
    changes: list[tuple[int, int, bytes]] = []
    for address, (host, port) in zip(found.addresses, others, strict=True):
        if address.is_one:
            changes.append((address.start, address.end, _text(host, flexible) + _int32.pack(port)))
    for tag in found.tags:
        inside = [
            len(made) - (end - start) for start, end, made in changes if tag.end <= start and end <= tag.end + tag.size
        ]
        changes.append((tag.start, tag.end, encode_uvarint(tag.size + sum(inside))))
    pieces, position = [], 0
    for start, end, made in sorted(changes):
        pieces += [frame[position:start], made]
        position = end
    return b"".join([*pieces, frame[position:]])


def _text(text: str, flexible: bool) -> bytes:
    encoded = text.encode()
    return (encode_uvarint(len(encoded) + 1) if flexible else _int16.pack(len(encoded))) + encoded


_known: Final[dict[tuple[int, int], Sequence[Step]]] = {}


def _steps(api: Api, version: int) -> Sequence[Step]:
    key = (api.key, version)
    steps = _known.get(key)
    if steps is None:
        walk = _Walk(version, is_flexible(api.response, version))
        steps = _known[key] = walk.to_the_last_address(api.response)
    return steps


@dataclass(frozen=True, slots=True)
class _Walk:
    """Builds the steps over messages of one version."""

    version: int
    flexible: bool

    def to_the_last_address(self, message: type[Any]) -> Sequence[Step]:
        """The steps over a message, up to the last field that may hold an address."""
        fields = self._fields(message)
        last = max((place for place, one in enumerate(fields) if self._may_name(one)), default=-1)
        steps = [self._step(one, fields, place) for place, one in enumerate(fields[: last + 1])]
        return steps if not self._tagged(message) else [*map(self._step, fields), self._tags(message)]

    def _over(self, struct_type: type[Any]) -> Step:
        fields = self._fields(struct_type)
        steps = [self._step(one, fields, place) for place, one in enumerate(fields)]
        if self.flexible:
            steps.append(self._tags(struct_type))

        def over(found: Found, position: int) -> int:
            for step in steps:
                position = step(found, position)
            return position

        return over

    def _fields(self, message: type[Any]) -> list[WireField]:
        return [one for one in fields_of(message) if one.exists(self.version) and one.tag is None]

    def _tagged(self, message: type[Any]) -> dict[int, WireField]:
        """The tagged fields that may hold addresses."""
        tagged = (one for one in fields_of(message) if one.exists(self.version) and one.tag is not None)
        return {one.tag: one for one in tagged if one.tag is not None and self._may_name(one)}

    def _may_name(self, field: WireField) -> bool:
        if field.struct is None:
            return field.name == "port"
        return any(self._may_name(one) for one in fields_of(field.struct) if one.exists(self.version))

    def _step(self, field: WireField, fields: Sequence[WireField] = (), place: int = -1) -> Step:
        one = self._one(field, place + 1 < len(fields) and fields[place + 1].name == "port")
        if not field.is_array:
            return one

        def each(found: Found, position: int) -> int:
            if self.flexible:
                count, position = decode_uvarint(found.frame, position)
                count -= 1
            else:
                count, position = _int32.unpack_from(found.frame, position)[0], position + 4
            if count > len(found.frame) - position:
                raise IndexError
            if field.struct is None and field.kind in WIDTHS:
                return position + max(0, count) * WIDTHS[field.kind]
            for _ in range(count):
                position = one(found, position)
            return position

        return each

    def _one(self, field: WireField, before_port: bool) -> Step:
        if field.struct is not None:
            return self._over(field.struct)
        assert field.kind is not None
        if field.kind is Kind.TEXT and field.name == "host" and before_port:
            return self._host
        if field.name == "port":
            return _port
        if field.name in NODE_IDS:
            return _node_id
        if (width := WIDTHS.get(field.kind)) is not None:
            return lambda found, position: position + width
        return self._long if field.kind is not Kind.TEXT else self._text

    def _text(self, found: Found, position: int) -> int:
        if self.flexible:
            length, position = decode_uvarint(found.frame, position)
            return position + max(0, length - 1)
        return position + 2 + max(0, int(_int16.unpack_from(found.frame, position)[0]))

    def _long(self, found: Found, position: int) -> int:
        """Skip bytes or records."""
        if self.flexible:
            return self._text(found, position)
        return position + 4 + max(0, int(_int32.unpack_from(found.frame, position)[0]))

    def _host(self, found: Found, position: int) -> int:
        end = self._text(found, position)
        first = decode_uvarint(found.frame, position)[1] if self.flexible else position + 2
        if end + 4 > len(found.frame):
            raise IndexError
        host, port = found.frame[first:end].decode(), int(_int32.unpack_from(found.frame, end)[0])
        found.addresses.append(Address(found.node_id, host, port, position, end + 4))
        return end

    def _tags(self, struct_type: type[Any]) -> Step:
        """The step over tagged fields: into those that may hold addresses, past the others."""
        inside = {tag: self._step(field) for tag, field in self._tagged(struct_type).items()}

        def over(found: Found, position: int) -> int:
            frame = found.frame
            if position < len(frame) and not frame[position]:
                return position + 1
            count, position = decode_uvarint(frame, position)
            for _ in range(count):
                tag, position = decode_uvarint(frame, position)
                start = position
                size, position = decode_uvarint(frame, position)
                if position + size > len(frame):
                    raise IndexError
                if tag in inside:
                    found.tags.append(TagSize(start, position, size))
                    if inside[tag](found, position) != position + size:
                        raise IndexError
                position += size
            return position

        return over


def _port(found: Found, position: int) -> int:
    return position + 4


def _node_id(found: Found, position: int) -> int:
    found.node_id = int(_int32.unpack_from(found.frame, position)[0])
    return position + 4


def distinct(found: Found) -> Iterator[Address]:
    """Each named broker, once."""
    seen = set()
    for one in found.addresses:
        if one.is_one and one[:3] not in seen:
            seen.add(one[:3])
            yield one
