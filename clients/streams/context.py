"""The task of a step: the interface for functions of an application, and the record in processing.

A step is bound once for each task, with a `Context`, and with a `Handler` that forwards records to the next steps.
`Task` implements all of it. Pure; source: ProcessorContext of Kafka Streams.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from anabranch.clients.streams.timed_store import MarkedStore, TimedStore
from anabranch.protocol.records.record import Headers
from anabranch.protocol.suggestion import suggest_arguments

KeyValue = tuple[bytes | None, Any]
Timed = TypeVar("Timed", bound=TimedStore)


class Handler(Protocol):
    """A function that handles a record: `forward(key, value)` passes it to the next steps."""

    def __call__(self, key: Any, value: Any, /) -> None:
        """Handle a record: its key, as bytes, `Windowed` or None, and its decoded value."""


class Change(NamedTuple):
    """A change of a table's row, as the next steps of a table get it."""

    new: Any
    """The value from now on; None if the row is deleted."""
    old: Any
    """The value before; None if there was none, or if no step asks for it (`Node.sends_old`)."""


class Store(Protocol):
    """A store of one task for a step: values by key, both bytes."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, None if it has none."""

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the value of a key; None deletes it."""

    def prefix_scan(self, prefix: bytes) -> Iterable[tuple[bytes, bytes]]:
        """Return every key that begins with a prefix, with its value, by key."""

    def items(self) -> Iterable[tuple[bytes, bytes]]:
        """Return every key with its value, in no order."""


class ReadOnlyStore(Protocol):
    """The store of a global table for a step, as it is now: values by key, both bytes."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, None if it has none."""

    def items(self) -> Iterable[tuple[bytes, bytes]]:
        """Return every key with its value, in no order."""


class TimestampedStore(Store, Protocol):
    """A store that keeps the timestamp of each value, as that of a table."""

    def get_timestamped(self, key: bytes) -> tuple[bytes, int] | None:
        """Return the value of a key and its timestamp, None if it has none."""

    def put(self, key: bytes, value: bytes | None, timestamp_ms: int = -1) -> None:
        """Set the value of a key and its timestamp; None deletes it."""


class Clock(enum.Enum):
    """The clock of a timer: `STREAM_TIME` is the highest timestamp of the task's records, and stands still while no
    records come; `WALL_CLOCK_TIME` is the time of day of the instance.
    """

    STREAM_TIME = "stream time"
    WALL_CLOCK_TIME = "wall-clock time"


class Timers(Protocol):
    """The timers of one name, for a step: at most one for each key."""

    def set(self, key: bytes, due_ms: int) -> None:
        """Set the timer of a key to a time in milliseconds since 1970, in place of an earlier one."""

    def cancel(self, key: bytes) -> None:
        """Remove the timer of a key, if it has one."""

    def due_ms(self, key: bytes) -> int | None:
        """Return when the timer of a key is due, None if it has none."""


class Context(Protocol):
    """The task of a step: the interface of functions given to `Stream.process`."""

    timestamp_ms: int
    """The timestamp of the current record, and of its output. A step may set it, for the records that it forwards."""
    headers: Headers
    """The headers of the current record, and of its output. A step may set them, for the records that it forwards."""

    @property
    def stream_time_ms(self) -> int:
        """The highest timestamp of the task's records so far; -1 before the first one since the task runs here."""

    @property
    def now_ms(self) -> int:
        """The time of day in milliseconds since 1970, as of the current records."""

    def store(self, name: str) -> Store:
        """Return a store that the step has named. Raises KeyError for another one."""

    def timestamped(self, name: str) -> TimestampedStore:
        """Return a timestamped store that the step has named; tables and aggregations do it."""

    def global_store(self, name: str) -> ReadOnlyStore:
        """Return the store of a global table. Every step may read it. Raises KeyError if there is none."""

    def timers(self, name: str) -> Timers:
        """Return the timers that the step has named. Raises KeyError for other ones."""

    def add_timers(self, name: str, clock: Clock, fire: Callable[[bytes, int], None]) -> None:
        """Have a function called with key and time of each due timer; `Stream.process` does it."""

    def add_timed_store(self, name: str, make: Callable[[MarkedStore, int], Timed]) -> Timed:
        """Make a store with stream time of one that the step has named; windows and joins do it."""

    def drop_late(self) -> None:
        """Count a record that came after its window had closed."""

    def hand_on_late_result(self, what: str, key: bytes, hand_on: Callable[[], None]) -> None:
        """Hand on a result of earlier records whose time is over. If that fails, it is not the current record's fault:
        where failed records are skipped, the result is skipped alone.
        """

    def emit(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        """Send a record; to an internal topic if the name begins with INTERNAL."""


Bind = Callable[[Context, Handler], Handler]
"""Creates a step for one task, from the task and the next step."""


def pass_on(context: Context, forward: Handler) -> Handler:
    """Bind a step that changes nothing."""
    return forward


def forward_at(timestamp_ms: int, context: Context, forward: Handler, key: Any, value: Any) -> None:
    """Hand a record on that has another timestamp than the current one."""
    context.timestamp_ms, own = timestamp_ms, context.timestamp_ms
    forward(key, value)
    context.timestamp_ms = own


@suggest_arguments
@dataclass(frozen=True, slots=True)
class Timer:
    """What happens when a key's timer is due.

    Args:
        store: The name of the store that keeps the timers; no other step uses it.
        fire: Is given the task's context, the key, the due time in milliseconds, and a function that hands a key and a
            value on. Its output has the due time as timestamp, and no headers.
        clock: Which time makes timers due.
    """

    store: str
    fire: Callable[[Context, bytes, int, Handler], None]
    clock: Clock = Clock.STREAM_TIME
