"""A stream whose records are aggregated in windows of time, per key.

Each method adds one step, and returns the results as a stream of `Windowed` keys. `windowed_aggregation` has the steps.
Pure; source: TimeWindowedKStream, SessionWindowedKStream and TimeWindowedCogroupedKStream of Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Generic, TypeVar

from anabranch.clients.streams.context import Context, Handler
from anabranch.clients.streams.serdes import JSON, Serde
from anabranch.clients.streams.sliding_aggregation import in_sliding_windows
from anabranch.clients.streams.sliding_window_store import SlidingWindowStore
from anabranch.clients.streams.topology_graph import Node
from anabranch.clients.streams.window_store import WindowStore
from anabranch.clients.streams.windowed_aggregation import (
    Add,
    Aggregation,
    Emit,
    LateTopic,
    Merge,
    in_sessions,
    in_time_windows,
)
from anabranch.clients.streams.windows import SessionWindows, SlidingWindows, TimeWindows, Windows
from anabranch.protocol.suggestion import suggest_arguments

Result = TypeVar("Result")
"""The class of the results: `Stream`, whose module uses this one."""
_NOTHING: Final = object()


@suggest_arguments
class WindowedStream(Generic[Result]):
    """A stream whose records are aggregated per key and window: see `Stream.windowed_by`."""

    def __init__(
        self, then: Callable[[Node], Result], windows: Windows, emit: Emit, late: LateTopic | None = None
    ) -> None:
        self._then = then
        self._windows = windows
        self._emit = emit
        self._late = late

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
        windows, emit, late = self._windows, self._emit, self._late
        if isinstance(windows, SessionWindows) and merge is None:
            raise ValueError("sessions are merged by a record between them: give merge=")

        def bind(context: Context, forward: Handler) -> Handler:
            made = partial(Aggregation, context, forward, emit=emit, initial=initial, value=value, late=late)
            if isinstance(windows, SlidingWindows):
                at_close = emit is Emit.ON_WINDOW_CLOSE
                sliding = partial(SlidingWindowStore, windows=windows, results_at_close=at_close)
                slid = context.add_timed_store(store, sliding)
                return in_sliding_windows(made(kept=slid), slid, windows, add)
            kept = context.add_timed_store(store, partial(WindowStore, windows=windows))
            if isinstance(windows, TimeWindows):
                return in_time_windows(made(kept=kept), windows, add)
            assert merge is not None, "checked above"
            return in_sessions(made(kept=kept), windows, add, merge)

        node = Node(
            bind,
            label=f"windowed aggregate {store}" + (f", late records to {late.topic}" if late else ""),
            stores=(store,),
            private=(store,),
            key_suffixes={store: windows.suffix_bytes},
            windows={store: windows},
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
            return other if one is _NOTHING or one is None else combine(one, other)

        return self.aggregate(
            store, lambda: _NOTHING, lambda key, row, before: merge(key, before, row), merge=merge, value=value
        )


@suggest_arguments
class WindowedCogroupedStream(Generic[Result]):
    """Several streams whose records are summed up per key and window: see `CogroupedStream.windowed_by`."""

    def __init__(self, together: WindowedStream[Result], add: Add) -> None:
        self._together = together
        self._add = add

    def aggregate(
        self, store: str, initial: Callable[[], Any], *, merge: Merge | None = None, value: Serde = JSON
    ) -> Result:
        """Sum up the records of each key and window, in a store. Records without a key are left out.

        Args:
            store: The name of the store.
            initial: Makes the aggregate of a window that has none.
            merge: Is given key and two aggregates of sessions that become one, and returns its aggregate. Only sessions
                need it.
            value: How aggregates are encoded in the store.

        Returns:
            The results, with `Windowed` keys.

        Raises:
            ValueError: The windows are sessions, and `merge` is missing.
        """
        return self._together.aggregate(store, initial, self._add, merge=merge, value=value)
