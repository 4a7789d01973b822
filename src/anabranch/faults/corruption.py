"""Damages answers, and the connections that they go over: the bytes of a rule.

What is done to bytes is pure; `DamagedResponse` and `SilentResponse` play it on a connection.
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

HEAD_BYTES: Final = 8
"""The frame's length, and the correlation id."""
BATCH_HEAD_BYTES: Final = 61
FLIPPED: Final = 0x55
ELSEWHERE: Final = 1_000_003
"""How far a wrong correlation id is from the right one: nobody has so many requests under way."""
DRIP_MS: Final = 100

_int32 = struct.Struct(">i")


def truncate_frame(frame: bytes, count: int) -> bytes:
    """A whole frame whose message ends too early."""
    body = frame[4 : max(len(frame) - count, HEAD_BYTES)]
    return _int32.pack(len(body)) + body


def corrupt_frame(frame: bytes) -> bytes:
    """One byte in the middle of the message is another."""
    at = (HEAD_BYTES + len(frame)) // 2
    return frame if at >= len(frame) else flip_byte(frame, at)


def flip_byte(data: Buffer, at: int) -> bytes:
    """The same bytes but one."""
    made = bytearray(data)
    made[at] ^= FLIPPED
    return bytes(made)


def with_wrong_correlation_id(frame: bytes) -> bytes:
    """The answer to a request that nobody has sent."""
    correlation_id: int = _int32.unpack_from(frame, 4)[0]
    return frame[:4] + _int32.pack((correlation_id + ELSEWHERE) & 0x7FFFFFFF) + frame[8:]


def damage_frame(frame: bytes, rule: Rule) -> bytes:
    """The bytes of an answer, as a rule has them."""
    if rule.truncate:
        frame = truncate_frame(frame, rule.truncate)
    if rule.corrupt == "frame":
        frame = corrupt_frame(frame)
    if rule.wrong_correlation_id:
        frame = with_wrong_correlation_id(frame)
    return frame[: len(frame) // 2] if rule.disconnect else frame


def corrupted_records(data: Buffer) -> bytes:
    """Batches of which the first has one wrong byte among its records: its checksum does not fit any more."""
    if len(data) <= BATCH_HEAD_BYTES:
        return bytes(data)
    end = min(len(data), 12 + int(_int32.unpack_from(data, 8)[0]))
    return flip_byte(data, (BATCH_HEAD_BYTES + max(end, BATCH_HEAD_BYTES)) // 2)


def with_corrupted_records(names: Names, message: Any, version: int, base: Row, meant: Callable[[Row], bool]) -> Any:
    """The answer with one wrong byte in the records of each row that is meant."""
    shape = shape_of(type(message))
    made = copy.copy(message)
    row = names.identity(message, shape, version, base)
    if shape.records and (records := getattr(message, shape.records)) and meant(row):
        setattr(made, shape.records, corrupted_records(records))
    for field in shape.nested:
        listed = getattr(message, field.name)
        if listed:
            setattr(made, field.name, [with_corrupted_records(names, one, version, row, meant) for one in listed])
    return made


def damages_bytes(rule: Rule) -> bool:
    """Whether a rule sends an answer otherwise than as it is."""
    middle = rule.disconnect == "middle"
    return bool(rule.truncate or rule.wrong_correlation_id or rule.drip or middle or rule.corrupt == "frame")


class DamagedResponse(ResponseOverride):
    """An answer that is sent, but not as it is: `rules` damage it, the innermost first."""

    def __init__(self, rules: Sequence[Rule], response: Any) -> None:
        super().__init__(f"rule {', '.join(one.name for one in rules)}")
        self.rules = rules
        self.response = response

    async def apply(self, line: ConnectionHandle) -> None:
        """Damage it, and send it as slowly as is asked."""
        frame = b"".join(line.encode_response(self.response))
        if not frame:
            return  # Produce with acks=0: there is no answer
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
    """A connection on which nothing is answered any more."""

    def __init__(self, armed: ActiveRule) -> None:
        super().__init__(f"rule {armed.rule.name}")
        self._armed = armed

    async def apply(self, line: ConnectionHandle) -> None:
        """Keep the connection as it is; one that is half open falls when the rule does."""
        if self._armed.rule.half_open:
            line.stop_reading()
            self._armed.on_removal(line.abort)
        await line.wait(FOREVER_MS)
