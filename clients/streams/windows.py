"""Windows of time: which windows a record falls into, when a window closes, and how its key is written.

    TimeWindows      windows of one size that begin at multiples of `advance_ms`: tumbling if that is the size, else
                     hopping. The end is exclusive.
    SlidingWindows   a window for every set of records of a key that lie within `difference_ms` of each other. Both ends
                     belong to it.
    SessionWindows   a window per burst of records of a key, without a gap longer than `gap_ms`. The end is the
                     timestamp of its last record. A record between two sessions merges them.
    JoinWindows      a window around each record of a stream, for the records of another one that it is joined with.

A window is closed when stream time has passed its end by the grace period (for sessions, by the gap as well). Then
nothing changes it any more. Pure. Source: TimeWindows, SlidingWindows, SessionWindows, JoinWindows,
WindowKeySchema and SessionKeySchema of Kafka Streams; the bytes of windowed keys are theirs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from anabranch.protocol.suggestion import suggest_arguments

_TIME: Final = struct.Struct(">q")
_TIME_WINDOW: Final = struct.Struct(">qi")
_SESSION: Final = struct.Struct(">qq")


class Windowed(NamedTuple):
    """A key with a window of time: the key of a record behind a windowed aggregation."""

    key: bytes
    start_ms: int
    end_ms: int
    """Exclusive; for a session, the timestamp of its last record; inclusive for sliding windows."""

    def encode(self) -> bytes:
        """Return the bytes in a topic: the key, and the start of the window."""
        return self.key + _TIME.pack(self.start_ms)


class Session(Windowed):
    """A key with a session."""

    __slots__ = ()

    def encode(self) -> bytes:
        """Return the bytes in a topic: the key, the end and the start of the session."""
        return self.key + _SESSION.pack(self.end_ms, self.start_ms)


def encode_key(key: Any) -> bytes | None:
    """Return the bytes of a record's key, windowed or not."""
    return key.encode() if isinstance(key, Windowed) else key


@suggest_arguments
@dataclass(frozen=True, slots=True)
class TimeWindows:
    """Windows of one size, in milliseconds since 1970.

    Args:
        size_ms: The size of a window.
        advance_ms: The distance between the starts of windows; `size_ms` if 0. Smaller ones make windows overlap.
        grace_ms: How long after its end a window accepts late records.

    Raises:
        ValueError: The size is not positive, the distance not between 1 and the size, or the grace period negative.
    """

    size_ms: int
    advance_ms: int = 0
    grace_ms: int = 0

    suffix_bytes: ClassVar[int] = _TIME_WINDOW.size
    """What a store's key has behind the record's key."""

    def __post_init__(self) -> None:
        if self.size_ms <= 0:
            raise ValueError(f"size_ms must be positive: {self.size_ms}")
        if not self.advance_ms:
            object.__setattr__(self, "advance_ms", self.size_ms)
        if not 0 < self.advance_ms <= self.size_ms:
            raise ValueError(f"advance_ms must be between 1 and size_ms ({self.size_ms}): {self.advance_ms}")
        _check_grace(self.grace_ms)

    def of(self, key: bytes, timestamp_ms: int) -> Iterable[Windowed]:
        """Return the windows of a key that a record of this time falls into, oldest first."""
        first = max(0, timestamp_ms - self.size_ms + self.advance_ms) // self.advance_ms * self.advance_ms
        return (Windowed(key, start, start + self.size_ms) for start in range(first, timestamp_ms + 1, self.advance_ms))

    def closes_at_ms(self, window: Windowed) -> int:
        """Return the stream time from which a window is closed."""
        return window.end_ms + self.grace_ms

    def store_key(self, window: Windowed) -> bytes:
        """Return the key of a window in a store."""
        return window.key + _TIME_WINDOW.pack(window.start_ms, 0)

    def window_of(self, store_key: bytes) -> Windowed:
        """Return the window of a key in a store."""
        start_ms, _ = _TIME_WINDOW.unpack(store_key[-self.suffix_bytes :])
        return Windowed(store_key[: -self.suffix_bytes], start_ms, start_ms + self.size_ms)


@suggest_arguments
@dataclass(frozen=True, slots=True)
class SlidingWindows:
    """Windows that follow the records of a key: one for every set of records that lie near each other.

    A window ends with a record, or begins right after one. A record changes all windows that its timestamp lies in.

    Args:
        difference_ms: How far the timestamps of records in one window may be apart, in milliseconds.
        grace_ms: How long after its end a window accepts late records.

    Raises:
        ValueError: The difference is not positive, or the grace period negative.
    """

    difference_ms: int
    grace_ms: int = 0

    suffix_bytes: ClassVar[int] = _TIME_WINDOW.size
    """What a store's key has behind the record's key."""

    def __post_init__(self) -> None:
        if self.difference_ms <= 0:
            raise ValueError(f"difference_ms must be positive: {self.difference_ms}")
        _check_grace(self.grace_ms)

    def starting(self, key: bytes, start_ms: int) -> Windowed:
        """Return the window of a key that begins at a time."""
        return Windowed(key, start_ms, start_ms + self.difference_ms)

    def closes_at_ms(self, window: Windowed) -> int:
        """Return the stream time from which a window is closed."""
        return window.end_ms + self.grace_ms + 1

    def kept_until_ms(self, window: Windowed) -> int:
        """Return the stream time from which no open window can be made of a window any more."""
        return self.closes_at_ms(window) + self.difference_ms + 1

    def store_key(self, window: Windowed) -> bytes:
        """Return the key of a window in a store."""
        return window.key + _TIME_WINDOW.pack(window.start_ms, 0)

    def window_of(self, store_key: bytes) -> Windowed:
        """Return the window of a key in a store."""
        start_ms, _ = _TIME_WINDOW.unpack(store_key[-self.suffix_bytes :])
        return self.starting(store_key[: -self.suffix_bytes], start_ms)


@suggest_arguments
@dataclass(frozen=True, slots=True)
class SessionWindows:
    """A window per burst of records of a key.

    Args:
        gap_ms: The longest time without a record within a session, in milliseconds.
        grace_ms: How much longer a session accepts late records.

    Raises:
        ValueError: The gap is not positive, or the grace period negative.
    """

    gap_ms: int
    grace_ms: int = 0

    suffix_bytes: ClassVar[int] = _SESSION.size
    """What a store's key has behind the record's key."""

    def __post_init__(self) -> None:
        if self.gap_ms <= 0:
            raise ValueError(f"gap_ms must be positive: {self.gap_ms}")
        _check_grace(self.grace_ms)

    def closes_at_ms(self, window: Windowed) -> int:
        """Return the stream time from which a session is closed."""
        return window.end_ms + self.gap_ms + self.grace_ms + 1

    def store_key(self, window: Windowed) -> bytes:
        """Return the key of a session in a store."""
        return window.key + _SESSION.pack(window.end_ms, window.start_ms)

    def window_of(self, store_key: bytes) -> Windowed:
        """Return the session of a key in a store."""
        end_ms, start_ms = _SESSION.unpack(store_key[-self.suffix_bytes :])
        return Session(store_key[: -self.suffix_bytes], start_ms, end_ms)


Windows = TimeWindows | SlidingWindows | SessionWindows


@suggest_arguments
@dataclass(frozen=True, slots=True)
class JoinWindows:
    """The times of the right records that a left record is joined with, in milliseconds. Both ends belong to it.

    Args:
        before_ms: How much earlier than the left record the right one may be. Negative if it must be later.
        after_ms: How much later than the left record the right one may be. Negative if it must be earlier.
        grace_ms: How much longer records are kept for late ones.

    Raises:
        ValueError: The window would end before it begins, the grace period is negative, or no record would be kept.
    """

    before_ms: int
    after_ms: int
    grace_ms: int = 0

    def __post_init__(self) -> None:
        if self.before_ms + self.after_ms < 0:
            raise ValueError(f"before_ms + after_ms must not be negative: {self.before_ms} + {self.after_ms}")
        _check_grace(self.grace_ms)
        if not self.retention_ms:
            raise ValueError("records of a window of 0 ms are not kept to be joined: give it a grace_ms of 1 or more")

    @property
    def retention_ms(self) -> int:
        """How long records are kept, by the stream time of their side."""
        return self.before_ms + self.after_ms + self.grace_ms

    @property
    def open_ms(self) -> tuple[int, int]:
        """How long after its timestamp a record may still be joined: one of the right side, one of the left side."""
        return self.before_ms + self.grace_ms, self.after_ms + self.grace_ms

    def around(self, timestamp_ms: int, *, is_left: bool) -> tuple[int, int]:
        """Return the first and the last time of the records that a record of a side is joined with."""
        earlier_ms, later_ms = (self.before_ms, self.after_ms) if is_left else (self.after_ms, self.before_ms)
        return max(0, timestamp_ms - earlier_ms), max(0, timestamp_ms + later_ms)


def _check_grace(grace_ms: int) -> None:
    if grace_ms < 0:
        raise ValueError(f"grace_ms must not be negative: {grace_ms}")
