"""A stream whose records are aggregated in windows of time, per key.

Each method adds one step, and returns the results as a stream of `Windowed` keys. A record that comes after its window
has closed is left out and counted (`Streams.late`). Pure; source: KStreamWindowAggregate and
KStreamSessionWindowAggregate of Kafka Streams.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Generic, TypeVar

from anabranch.clients.streams.context import Context, Handler, forward_at
from anabranch.clients.streams.serdes import JSON, Serde
from anabranch.clients.streams.topology_graph import Node
from anabranch.clients.streams.window_store import WindowStore
from anabranch.clients.streams.windows import Session, SessionWindows, TimeWindows, Windowed, Windows
from anabranch.protocol.suggestion import suggest_arguments

Add = Callable[[bytes, Any, Any], Any]
Merge = Callable[[bytes, Any, Any], Any]
Result = TypeVar("Result")
"""The class of the results: `Stream`, whose module uses this one."""
_NOTHING: Final = object()


class Emit(enum.Enum):
    """When a windowed aggregation hands results on: at each change, or once, when the window has closed."""

    ON_WINDOW_UPDATE = "on window update"
    ON_WINDOW_CLOSE = "on window close"


class Aggregation:
    """One windowed aggregation in one task: its functions, its windows and the next step."""

    def __init__(
        self,
        context: Context,
        forward: Handler,
        kept: WindowStore,
        emit: Emit,
        initial: Callable[[], Any],
        value: Serde,
    ) -> None:
        self.context = context
        self.kept = kept
        self.initial = initial
        self._forward = forward
        self._emit = emit
        self._value = value

    def before(self, window: Windowed) -> tuple[Any, int]:
        """Return the aggregate of a window and its timestamp; the initial one and -1 if it has none."""
        stored = self.kept.get(window)
        return (self.initial(), -1) if stored is None else (self._value.decode(stored[0]), stored[1])

    def update(self, window: Windowed, after: Any, timestamp_ms: int) -> None:
        """Keep an aggregate, None to delete it, and hand it on."""
        if after is None:
            self.kept.remove(window)
        else:
            self.kept.put(window, self._value.encode(after), timestamp_ms)
        if self._emit is Emit.ON_WINDOW_UPDATE:
            self._hand_on(window, after, timestamp_ms)

    def close_windows(self) -> None:
        """Remove the windows that stream time has closed; hand their results on, if that was put off."""
        while (closed := self.kept.take_closed()) is not None:
            if self._emit is Emit.ON_WINDOW_CLOSE:
                window, value, timestamp_ms = closed
                self._hand_on(window, self._value.decode(value), timestamp_ms)

    def _hand_on(self, window: Windowed, aggregate: Any, timestamp_ms: int) -> None:
        forward_at(timestamp_ms, self.context, self._forward, window, aggregate)


@suggest_arguments
class WindowedStream(Generic[Result]):
    """A stream whose records are aggregated per key and window: see `Stream.windowed_by`."""

    def __init__(self, then: Callable[[Node], Result], windows: Windows, emit: Emit) -> None:
        self._then = then
        self._windows = windows
        self._emit = emit

    def aggregate(
        self,
        store: str,
        initial: Callable[[], Any],
        add: Callable[[bytes, Any, Any], Any],
        *,
        merge: Merge | None = None,
        value: Serde = JSON,
    ) -> Result:
        """Sum up the records of each key and window, in a store. Records without a key are left out.

        Args:
            store: The name of the store.
            initial: Makes the aggregate of a window that has none.
            add: Is given key, value and aggregate, and returns the new aggregate; None deletes it.
            merge: Is given key and two aggregates of sessions that become one, and returns its aggregate. Only sessions
                need it.
            value: How aggregates are encoded in the store.

        Returns:
            The results, with `Windowed` keys.

        Raises:
            ValueError: The windows are sessions, and `merge` is missing.
        """
        windows, emit = self._windows, self._emit
        if isinstance(windows, SessionWindows) and merge is None:
            raise ValueError("sessions are merged by a record between them: give merge=")

        def bind(context: Context, forward: Handler) -> Handler:
            kept = context.add_timed_store(store, partial(WindowStore, windows=windows))
            aggregation = Aggregation(context, forward, kept, emit, initial, value)
            if isinstance(windows, TimeWindows):
                return _in_time_windows(aggregation, windows, add)
            assert merge is not None, "checked above"
            return _in_sessions(aggregation, windows, add, merge)

        node = Node(
            bind,
            label=f"windowed aggregate {store}",
            stores=(store,),
            private=(store,),
            key_suffixes={store: windows.suffix_bytes},
        )
        return self._then(node)

    def count(self, store: str) -> Result:
        """Count the records of each key and window, in a store.

        Args:
            store: The name of the store.

        Returns:
            The counts, with `Windowed` keys.
        """
        return self.aggregate(
            store, lambda: 0, lambda key, row, count: count + 1, merge=lambda key, one, other: one + other
        )

    def reduce(self, store: str, combine: Callable[[Any, Any], Any], *, value: Serde = JSON) -> Result:
        """Combine all values of a key and window into one, in a store. The first value is kept as it is.

        Args:
            store: The name of the store.
            combine: Is given two values, the older one first, and returns one; None deletes the result.
            value: How values are encoded in the store.

        Returns:
            The results, with `Windowed` keys.
        """

        def merge(key: bytes, one: Any, other: Any) -> Any:
            return other if one is _NOTHING else combine(one, other)

        return self.aggregate(
            store, lambda: _NOTHING, lambda key, row, before: merge(key, before, row), merge=merge, value=value
        )


def _in_time_windows(aggregation: Aggregation, windows: TimeWindows, add: Add) -> Handler:
    context, kept = aggregation.context, aggregation.kept

    def one(key: bytes | None, row: Any) -> None:
        if key is None:
            return
        timestamp_ms = context.timestamp_ms
        stream_time_ms = kept.observe(timestamp_ms)
        for window in windows.of(key, timestamp_ms):
            if windows.closes_at_ms(window) <= stream_time_ms:
                context.drop_late()
                continue
            before, newest_ms = aggregation.before(window)
            aggregation.update(window, add(key, row, before), max(timestamp_ms, newest_ms))
        aggregation.close_windows()

    return one


def _in_sessions(aggregation: Aggregation, windows: SessionWindows, add: Add, merge: Merge) -> Handler:
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
