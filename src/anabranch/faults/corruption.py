"""Damages responses and connections, at the level of bytes.

The functions on bytes are pure; `DamagedResponse` and `SilentResponse` apply them to a connection.
"""

from __future__ import annotations

import copy
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from anabranch.broker.network.response_override import FOREVER_MS, ResponseOverride
from anabranch.faults.request_fields import Names, Row, shape_of

if TYPE_CHECKING:
    from anabranch.broker.network.response_override import ConnectionHandle
    from anabranch.faults.active_rule import ActiveRule
    from anabranch.faults.rule import Rule
    from anabranch.protocol.varint import Buffer

RECORDS: Final = "records"
"""The value of `corrupt` for a wrong byte among records."""
HEAD_BYTES: Final = 8
"""The frame length and the correlation id."""
BATCH_HEAD_BYTES: Final = 61
FLIPPED: Final = 0x55
ELSEWHERE: Final = 1_000_003
"""The distance of a wrong correlation id from the right one: more than any client has requests in flight."""
DRIP_MS: Final = 100

_int32 = struct.Struct(">i")


def truncate_frame(frame: bytes, count: int) -> bytes:
    """Cut a message short; the frame length matches the rest."""
    body = frame[4 : max(len(frame) - count, HEAD_BYTES)]
    return _int32.pack(len(body)) + body


def corrupt_frame(frame: bytes) -> bytes:
    """Change one byte in the middle of the message."""
    at = (HEAD_BYTES + len(frame)) // 2
    return frame if at >= len(frame) else flip_byte(frame, at)


def flip_byte(data: Buffer, at: int) -> bytes:
    """Change one byte."""
    made = bytearray(data)
    made[at] ^= FLIPPED
    return bytes(made)


def with_wrong_correlation_id(frame: bytes) -> bytes:
    """Replace the correlation id by one that no request has."""
    correlation_id: int = _int32.unpack_from(frame, 4)[0]
    return frame[:4] + _int32.pack((correlation_id + ELSEWHERE) & 0x7FFFFFFF) + frame[8:]


def damage_frame(frame: bytes, rule: Rule) -> bytes:
    """Damage a response by a rule."""
    if rule.truncate:
        frame = truncate_frame(frame, rule.truncate)
    if rule.corrupt == "frame":
        frame = corrupt_frame(frame)
    if rule.wrong_correlation_id:
        frame = with_wrong_correlation_id(frame)
    return frame[: len(frame) // 2] if rule.disconnect else frame


def corrupted_records(data: Buffer) -> bytes:
    """Change one byte in the records of the first batch, so that its checksum fails."""
    if len(data) <= BATCH_HEAD_BYTES:
        return bytes(data)
    end = min(len(data), 12 + int(_int32.unpack_from(data, 8)[0]))
    return flip_byte(data, (BATCH_HEAD_BYTES + max(end, BATCH_HEAD_BYTES)) // 2)


def has_records(message: type[Any]) -> bool:
    """Whether messages of this class have records that can be changed."""
    shape = shape_of(message)
    return bool(shape.records) or any(one.struct is not None and has_records(one.struct) for one in shape.nested)


def has_matching_records(names: Names, message: Any, version: int, base: Row, matches: Callable[[Row], bool]) -> bool:
    """Whether a response has records in a matching row."""
    shape = shape_of(type(message))
    row = names.identity(message, shape, version, base)
    if shape.records and len(getattr(message, shape.records) or b"") > BATCH_HEAD_BYTES and matches(row):
        return True
    return any(
        has_matching_records(names, one, version, row, matches)
        for field in shape.nested
        for one in getattr(message, field.name) or ()
    )


def with_corrupted_records(names: Names, message: Any, version: int, base: Row, matches: Callable[[Row], bool]) -> Any:
    """Change one byte in the records of each matching row of a response."""
    shape = shape_of(type(message))
    made = copy.copy(message)
    row = names.identity(message, shape, version, base)
    if shape.records and (records := getattr(message, shape.records)) and matches(row):
        setattr(made, shape.records, corrupted_records(records))
    for field in shape.nested:
        listed = getattr(message, field.name)
        if listed:
            setattr(made, field.name, [with_corrupted_records(names, one, version, row, matches) for one in listed])
    return made


def damages_bytes(rule: Rule) -> bool:
    """Whether a rule changes how a response is sent."""
    middle = rule.disconnect == "middle"
    return bool(rule.truncate or rule.wrong_correlation_id or rule.drip or middle or rule.corrupt == "frame")


class DamagedResponse(ResponseOverride):
    """A response that is damaged before it is sent: by all of `rules`, the innermost first."""

    def __init__(self, rules: Sequence[Rule], response: Any) -> None:
        super().__init__(f"rule {', '.join(one.name for one in rules)}")
        self.rules = rules
        self.response = response

    async def apply(self, line: ConnectionHandle) -> None:
        """Damage the response, and send it at the rules' pace."""
        frame = b"".join(line.encode_response(self.response))
        if not frame:
            return  # Produce with acks=0: no response
        for rule in self.rules:
            frame = damage_frame(frame, rule)
        if a_second := min((rule.drip for rule in self.rules if rule.drip), default=0):
            await self._drip(line, frame, a_second)
        else:
            line.send([frame])
        if any(rule.disconnect for rule in self.rules):
            line.close()
            await line.wait(FOREVER_MS)

    async def _drip(self, line: ConnectionHandle, frame: bytes, a_second: int) -> None:
        size = max(1, a_second * DRIP_MS // 1000)
        for start in range(0, len(frame), size):
            line.send([frame[start : start + size]])
            if not await line.wait(size * 1000 // a_second):
                return


class SilentResponse(ResponseOverride):
    """A connection that gets no further responses."""

    def __init__(self, armed: ActiveRule) -> None:
        super().__init__(f"rule {armed.rule.name}")
        self._armed = armed

    async def apply(self, line: ConnectionHandle) -> None:
        """Keep the connection open; a half-open one is closed when the rule ends."""
        if self._armed.rule.half_open:
            line.stop_reading()
            self._armed.on_removal(line.abort)
        await line.wait(FOREVER_MS)
