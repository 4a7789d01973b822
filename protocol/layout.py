"""The reference codec: builds a construct tree for (message class, version). Slow and simple.

It reads the same declarations as the generated codecs and shares nothing else with them; a property test compares the
two for every message and version. Never use it to serve a request: it takes at least ten times as long.

The only module that imports construct. Import it inside functions, not at the top of a module that a node or a client
loads.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, Final

import construct as c

from anabranch.protocol.errors import DecodeError
from anabranch.protocol.registry import BY_NAME
from anabranch.protocol.varint import Buffer
from anabranch.protocol.wire import Kind, WireField, fields_of

NO_TAGS: Final[Mapping[int, bytes]] = {}


def encode(message: Any, version: int, *, extra_tags: Mapping[int, bytes] = NO_TAGS) -> bytes:
    """Encode one message. `extra_tags` are added to every tag buffer, as a newer sender might."""
    built: bytes = layout_of(type(message), version, tuple(extra_tags.items())).build(message)
    return built


def decode(cls: type[Any], version: int, buffer: Buffer, position: int = 0) -> tuple[Any, int]:
    """Decode one message from `position` on; return it and the next position."""
    stream = io.BytesIO(buffer)
    stream.seek(position)
    try:
        message = layout_of(cls, version).parse_stream(stream)
    except (c.ConstructError, UnicodeDecodeError) as error:
        reason, _, path = str(error).partition("\n")
        raise DecodeError(reason, path=path, buffer=buffer, position=stream.tell()) from None
    return message, stream.tell()


def layout_of(cls: type[Any], version: int, extra_tags: tuple[tuple[int, bytes], ...] = ()) -> c.Construct:
    """Return the tree of one message version."""
    key = (cls, version, extra_tags)
    if key not in _layouts:
        _layouts[key] = _Layouts(version, _is_flexible(cls, version), dict(extra_tags)).structure(cls)
    return _layouts[key]


_layouts: Final[dict[tuple[Any, ...], c.Construct]] = {}


def _is_flexible(cls: type[Any], version: int) -> bool:
    api = BY_NAME.get(cls.__name__.removesuffix("Request").removesuffix("Response"))
    first = getattr(cls, "flexible_from", None) if api is None else api.flexible_from
    return first is not None and version >= first


class _Layouts:
    def __init__(self, version: int, flexible: bool, extra_tags: Mapping[int, bytes]) -> None:
        self.version = version
        self.flexible = flexible
        self.extra_tags = extra_tags

    def structure(self, cls: type[Any]) -> c.Construct:
        """Return the fields in wire order, then the tag buffer."""
        here = [field for field in fields_of(cls) if field.exists(self.version)]
        parts = [field.name / self.field(field) for field in here if field.tag is None]
        if self.flexible:
            tagged = {field.tag: (field, self.field(field)) for field in here if field.tag is not None}
            parts.append("_tagged" / _Tags(tagged, self.extra_tags))
        return _Object(c.Struct(*parts), cls)

    def field(self, field: WireField) -> c.Construct:
        """Return one field: an array or an element."""
        nullable = field.may_be_null(self.version)
        if field.is_array:
            return self.counted_elements(self.element(field, nullable=False), nullable)
        return self.element(field, nullable)

    def element(self, field: WireField, nullable: bool) -> c.Construct:
        """Return a struct or a primitive."""
        if field.struct is not None:
            structure = self.structure(field.struct)
            return self.optional(structure) if nullable else structure
        assert field.kind is not None
        if field.kind in _FIXED:
            return _FIXED[field.kind]
        if field.kind is Kind.TEXT:
            return _Text(self.sized_bytes(c.Int16sb, nullable))
        return self.sized_bytes(c.Int32sb, nullable)

    def optional(self, structure: c.Construct) -> c.Construct:
        """Return a nullable struct: a presence byte, 1 or -1, precedes it (KIP-893)."""
        return c.FocusedSeq(
            "item",
            "present" / c.Rebuild(c.Int8sb, lambda ctx: -1 if ctx.item is None else 1),
            "item" / c.IfThenElse(lambda ctx: ctx.present < 0, c.Pass, structure),
        )

    def sized_bytes(self, classic: c.Construct, nullable: bool) -> c.Construct:
        """Return a length and that many bytes; no bytes for null."""
        return c.FocusedSeq(
            "data",
            "size" / c.Rebuild(self.number(classic), lambda ctx: -1 if ctx.data is None else len(ctx.data)),
            c.Check(lambda ctx: nullable or ctx.size >= 0),
            "data" / c.IfThenElse(lambda ctx: ctx.size < 0, c.Pass, c.Bytes(c.this.size)),
        )

    def counted_elements(self, element: c.Construct, nullable: bool) -> c.Construct:
        """Return a count and that many elements; none for null."""
        return c.FocusedSeq(
            "items",
            "count" / c.Rebuild(self.number(c.Int32sb), lambda ctx: -1 if ctx["items"] is None else len(ctx["items"])),
            c.Check(lambda ctx: nullable or ctx.count >= 0),
            "items" / c.IfThenElse(lambda ctx: ctx.count < 0, c.Pass, _Plain(c.Array(c.this.count, element))),
        )

    def number(self, classic: c.Construct) -> c.Construct:
        """Return a length or count: a signed integer, or in flexible versions a varint of one more."""
        if not self.flexible:
            return classic
        return c.ExprAdapter(c.VarInt, decoder=lambda obj, _: obj - 1, encoder=lambda obj, _: obj + 1)


_FIXED: Final = {
    Kind.BOOLEAN: c.ExprAdapter(c.Int8ub, decoder=lambda obj, _: obj != 0, encoder=lambda obj, _: int(obj)),
    Kind.INT8: c.Int8sb,
    Kind.INT16: c.Int16sb,
    Kind.UINT16: c.Int16ub,
    Kind.INT32: c.Int32sb,
    Kind.UINT32: c.Int32ub,
    Kind.INT64: c.Int64sb,
    Kind.FLOAT64: c.Float64b,
    Kind.UUID: c.Bytes(16),
}


class _Text(c.Adapter):  # type: ignore[misc]
    """UTF-8, or null."""

    def _decode(self, obj: bytes | None, context: Any, path: str) -> str | None:
        return None if obj is None else obj.decode()

    def _encode(self, obj: str | None, context: Any, path: str) -> bytes | None:
        return None if obj is None else obj.encode()


class _Plain(c.Adapter):  # type: ignore[misc]
    """A plain list instead of a ListContainer."""

    def _decode(self, obj: Any, context: Any, path: str) -> list[Any]:
        return list(obj)

    def _encode(self, obj: list[Any], context: Any, path: str) -> list[Any]:
        return obj


class _Object(c.Adapter):  # type: ignore[misc]
    """A message or nested struct; missing fields take their declared default."""

    def __init__(self, subcon: c.Construct, cls: type[Any]) -> None:
        super().__init__(subcon)
        self.cls = cls

    def _decode(self, obj: Any, context: Any, path: str) -> Any:
        found = {**obj, **obj.get("_tagged", {})}
        fields = fields_of(self.cls)
        return self.cls(**{f.name: found[f.name] if f.name in found else f.absent_value() for f in fields})

    def _encode(self, obj: Any, context: Any, path: str) -> dict[str, Any]:
        values = {field.name: getattr(obj, field.name) for field in fields_of(self.cls)}
        return {**values, "_tagged": values}


class _Tags(c.Adapter):  # type: ignore[misc]
    """A tag buffer: the values of known tags by field name, without those that equal their default."""

    def __init__(self, known: Mapping[int, tuple[WireField, c.Construct]], extra: Mapping[int, bytes]) -> None:
        entry = c.Struct("tag" / c.VarInt, "payload" / c.Prefixed(c.VarInt, c.GreedyBytes))
        super().__init__(c.PrefixedArray(c.VarInt, entry))
        self.known = known
        self.extra = extra

    def _decode(self, obj: Any, context: Any, path: str) -> dict[str, Any]:
        tags = [entry.tag for entry in obj]
        if tags != sorted(set(tags)):
            raise c.ValidationError(f"tags {tags} are not ascending", path=path)
        values = {}
        for entry in obj:
            if entry.tag in self.known:
                field, layout = self.known[entry.tag]
                payload = io.BytesIO(entry.payload)
                values[field.name] = layout.parse_stream(payload)
                if payload.read(1):
                    raise c.ValidationError(f"tag {entry.tag} is longer than its value", path=path)
        return values

    def _encode(self, obj: dict[str, Any], context: Any, path: str) -> list[dict[str, Any]]:
        payloads = dict(self.extra)
        for tag, (field, layout) in self.known.items():
            if obj[field.name] != field.absent_value():
                payloads[tag] = layout.build(obj[field.name])
        return [{"tag": tag, "payload": payload} for tag, payload in sorted(payloads.items())]
