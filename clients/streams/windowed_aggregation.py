"""An aggregation in windows of time, in one task: which windows a record changes, and which results are forwarded.

A record that comes after its window has closed is left out and counted (`Streams.late`). One that is not counted in any
window is sent to the topic of late records, if there is one. Pure; source: KStreamWindowAggregate and
KStreamSessionWindowAggregate of Kafka Streams.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anabranch.clients.streams.context import Context, Handler, forward_at
from anabranch.clients.streams.serdes import Serde
from anabranch.clients.streams.window_store import WindowStore
from anabranch.clients.streams.windows import Session, SessionWindows, TimeWindows, Windowed
from anabranch.protocol.suggestion import suggest_arguments

Add = Callable[[bytes, Any, Any], Any]
Merge = Callable[[bytes, Any, Any], Any]


class Emit(enum.Enum):
    """When a windowed aggregation hands results on: at each change, or once, when the window has closed."""

    ON_WINDOW_UPDATE = "on window update"
    ON_WINDOW_CLOSE = "on window close"


@suggest_arguments
@dataclass(frozen=True, slots=True)
class LateTopic:
    """The topic for records that come too late to be counted in any window.

    Args:
        topic: Its name.
        value: How their values are encoded.
    """

    topic: str
    value: Serde


@dataclass(frozen=True, slots=True)
class Aggregation:
    """One windowed aggregation in one task: its functions, its windows and the next step."""

    context: Context
    forward: Handler
    kept: WindowStore
    emit: Emit
    initial: Callable[[], Any]
    value: Serde
    late: LateTopic | None

    def before(self, window: Windowed) -> tuple[Any, int]:
        """Return the aggregate of a window and its timestamp; the initial one and -1 if it has none."""
        stored = self.kept.get(window)
        return (self.initial(), -1) if stored is None else (self.value.decode(stored[0]), stored[1])

    def update(self, window: Windowed, after: Any, timestamp_ms: int) -> None:
        """Keep an aggregate, None to delete it, and hand it on."""
        if after is None:
            self.kept.remove(window)
        else:
            self.kept.put(window, self.value.encode(after), timestamp_ms)
        if self.emit is Emit.ON_WINDOW_UPDATE:
            self._hand_on(window, after, timestamp_ms)

    def leave_out(self, key: bytes, row: Any) -> None:
        """Send a record that no window has counted to the topic of late records."""
        if self.late is not None:
            self.context.emit(self.late.topic, key, None if row is None else self.late.value.encode(row))

    def close_windows(self) -> None:
        """Remove the windows that stream time has closed; hand their results on, if that was put off."""
        while (closed := self.kept.take_closed()) is not None:
            if self.emit is Emit.ON_WINDOW_CLOSE:
                window, value, timestamp_ms = closed
                self.context.hand_on_late_result(
                    f"the result of the window from {window.start_ms} to {window.end_ms}",
                    window.key,
                    lambda: self._hand_on(window, self.value.decode(value), timestamp_ms),  # noqa: B023 (called at once)
                )

    def _hand_on(self, window: Windowed, aggregate: Any, timestamp_ms: int) -> None:
        forward_at(timestamp_ms, self.context, self.forward, window, aggregate)


def in_time_windows(aggregation: Aggregation, windows: TimeWindows, add: Add) -> Handler:
    """Return a step that aggregates in windows of one size."""
    context, kept = aggregation.context, aggregation.kept

    def one(key: bytes | None, row: Any) -> None:
        if key is None:
            return
        timestamp_ms, counted = context.timestamp_ms, False
        stream_time_ms = kept.observe(timestamp_ms)
        for window in windows.of(key, timestamp_ms):
            if windows.closes_at_ms(window) <= stream_time_ms:
                context.drop_late()
                continue
            counted = True
            before, newest_ms = aggregation.before(window)
            aggregation.update(window, add(key, row, before), max(timestamp_ms, newest_ms))
        if not counted:
            aggregation.leave_out(key, row)
        aggregation.close_windows()

    return one


def in_sessions(aggregation: Aggregation, windows: SessionWindows, add: Add, merge: Merge) -> Handler:
    """Return a step that aggregates in sessions."""
    context, kept, gap_ms = aggregation.context, aggregation.kept, windows.gap_ms

    def one(key: bytes | None, row: Any) -> None:
        if key is None:
            return
        timestamp_ms = context.timestamp_ms
        stream_time_ms = kept.observe(timestamp_ms)
        merged = kept.sessions(key, timestamp_ms - gap_ms, timestamp_ms + gap_ms)
        start_ms = min([timestamp_ms, *(session.start_ms for session in merged)])
        end_ms = max([timestamp_ms, *(session.end_ms for session in merged)])
        whole = Session(key, start_ms, end_ms)
        if windows.closes_at_ms(whole) <= stream_time_ms:
            context.drop_late()
            aggregation.leave_out(key, row)
        else:
            before = aggregation.initial()
            for session in merged:
                before = merge(key, before, aggregation.before(session)[0])
            if start_ms < end_ms:  # else the only session is replaced by itself
                for session in merged:
                    aggregation.update(session, None, session.end_ms)
            aggregation.update(whole, add(key, row, before), end_ms)
        aggregation.close_windows()

    return one
