"""An aggregation in sliding windows, in one task: which windows a record makes, and which it changes.

For each timestamp t of a key's records there is the window that ends with it, and the window that begins right after
it, if later records fall into that. So every set of records that lie within the time difference has one window:

    left window of t     [t - difference, t]
    right window of t    [t + 1, t + 1 + difference], without the records of t

A record is added to every window that its time lies in. Its left window has the records of the last window that ends
before it, if these lie in it. Its right window has those of the newest window that its time lies in. The newest record
before it gets its right window, with this record alone. As times are not negative, [0, difference] is the left window
of all times before `difference`.

So the windows of a key are looked up that begin within two differences before a record. They are kept for a difference
after they have closed (`SlidingWindows.kept_until_ms`), as open windows are made of them.

Pure; source: KStreamSlidingWindowAggregate of Kafka Streams. Results are in its order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from anabranch.clients.streams.context import Handler
from anabranch.clients.streams.sliding_window_store import KeptWindow, SlidingWindowStore
from anabranch.clients.streams.windowed_aggregation import Add, Aggregation
from anabranch.clients.streams.windows import SlidingWindows


def in_sliding_windows(
    aggregation: Aggregation, kept: SlidingWindowStore, windows: SlidingWindows, add: Add
) -> Handler:
    """Return a step that aggregates in sliding windows. Records without a key or a value are left out."""
    context = aggregation.context

    def one(key: bytes | None, row: Any) -> None:
        if key is None or row is None:
            return
        timestamp_ms = context.timestamp_ms
        stream_time_ms = kept.observe(timestamp_ms)
        record = _Record(aggregation, kept, windows, add, key, row, timestamp_ms)
        if windows.closes_at_ms(windows.starting(key, timestamp_ms)) <= stream_time_ms:
            context.drop_late()
        elif timestamp_ms < windows.difference_ms:
            record.add_early()
        else:
            record.add()
        if not record.counted:
            aggregation.leave_out(key, row)
        aggregation.close_windows()

    return one


@dataclass(slots=True)
class _Record:
    """A record on its way into the windows of its key."""

    aggregation: Aggregation
    kept: SlidingWindowStore
    windows: SlidingWindows
    add_row: Add
    key: bytes
    row: Any
    timestamp_ms: int
    counted: bool = field(default=False, init=False)
    """Whether a window has counted it."""

    def add(self) -> None:
        """Add it to the windows that its time lies in, the last one first, and make those that it needs."""
        timestamp_ms, difference_ms = self.timestamp_ms, self.windows.difference_ms
        before: KeptWindow | None = None
        """The last window that ends before it."""
        around: KeptWindow | None = None
        """The last window that its time lies in, and that does not end with it."""
        previous_ms: int | None = None
        """The newest timestamp before it, as far as windows show it."""
        has_left = False
        kept = self.kept.starting(self.key, max(0, timestamp_ms - 2 * difference_ms), timestamp_ms + 1)
        starts = {window.start_ms for window in kept}
        for window in kept:
            end_ms = window.start_ms + difference_ms
            if window.start_ms > timestamp_ms:
                continue
            if end_ms < timestamp_ms:
                before, previous_ms = window, window.newest_ms
                break
            around = around or (window if end_ms > timestamp_ms else None)
            self._change(window)
            if end_ms == timestamp_ms:
                has_left = True
                if window.newest_ms == timestamp_ms:
                    return  # another record of this timestamp has made all windows
                previous_ms = window.newest_ms
        if (
            previous_ms is not None
            and previous_ms + 1 not in starts
            and previous_ms + 1 + difference_ms >= timestamp_ms
        ):
            self._make(previous_ms + 1)
        if not has_left:
            near = before is not None and before.newest_ms >= timestamp_ms - difference_ms
            self._make(timestamp_ms - difference_ms, before if near else None)
        self._make_right(around, starts)

    def add_early(self) -> None:
        """Add it to the windows that its time lies in, the first one last: that is the left window of early times."""
        kept = self.kept.starting(self.key, 0, self.timestamp_ms + 1)[::-1]
        first = next((window for window in kept if window.start_ms == 0), None)
        around: KeptWindow | None = None
        for window in kept:
            if 0 < window.start_ms <= self.timestamp_ms:
                around = window
                self._change(window)
        starts = {window.start_ms for window in kept}
        self._make_right(around or first, starts)
        if first is None:
            self._make(0)
            return
        if first.newest_ms < self.timestamp_ms and first.newest_ms + 1 not in starts:
            self._make(first.newest_ms + 1)
        self._change(first)

    def _change(self, window: KeptWindow) -> None:
        """Add the record to a window."""
        self._put(window.start_ms, self.aggregation.value.decode(window.value), window.newest_ms)

    def _make(self, start_ms: int, like: KeptWindow | None = None) -> None:
        """Make a window of this record, and those of another window."""
        before = self.aggregation.initial() if like is None else self.aggregation.value.decode(like.value)
        self._put(start_ms, before, self.timestamp_ms)

    def _make_right(self, around: KeptWindow | None, starts: set[int]) -> None:
        """Make the window that begins right after the record, if it has none, and there are later records."""
        start_ms = self.timestamp_ms + 1
        if around is not None and around.newest_ms > self.timestamp_ms and start_ms not in starts:
            later = self.aggregation.value.decode(around.value)
            self.aggregation.update(self.windows.starting(self.key, start_ms), later, around.newest_ms)

    def _put(self, start_ms: int, before: Any, newest_ms: int) -> None:
        window = self.windows.starting(self.key, start_ms)
        if self.windows.closes_at_ms(window) <= self.kept.stream_time_ms:
            self.aggregation.context.drop_late()
            return
        self.counted = True
        self.aggregation.update(window, self.add_row(self.key, self.row, before), max(self.timestamp_ms, newest_ms))
