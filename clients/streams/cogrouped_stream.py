"""Several streams whose records are summed up in one aggregate per key, or per key and window.

Each record is marked with the stream that it is from, so that the streams can be merged and aggregated as one. Pure;
source: CogroupedKStream of Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from anabranch.clients.streams import stream_steps
from anabranch.clients.streams.serdes import JSON, Serde
from anabranch.clients.streams.stateless_stream import StatelessStream
from anabranch.clients.streams.windowed_aggregation import Add, Emit
from anabranch.clients.streams.windowed_stream import WindowedCogroupedStream
from anabranch.clients.streams.windows import SlidingWindows, Windows
from anabranch.protocol.suggestion import suggest_arguments

Stream = TypeVar("Stream", bound=StatelessStream[Any])
Table = TypeVar("Table")
"""The classes of streams and of results: those of `stream`, whose module uses this one."""


@suggest_arguments
class CogroupedStream(Generic[Stream, Table]):
    """Several streams whose records are summed up in one aggregate per key: see `Stream.cogroup`."""

    def __init__(self, parts: tuple[tuple[Stream, Add], ...]) -> None:
        self._parts = parts

    def cogroup(self, other: Stream, add: Add) -> CogroupedStream[Stream, Table]:
        """Add the records of another stream.

        Args:
            other: A stream of the same topology.
            add: As that of `Stream.cogroup`, for its records.

        Returns:
            What `cogroup`, `aggregate` and `windowed_by` are called on.

        Raises:
            ValueError: The stream is one of another topology.
        """
        if other._graph is not self._parts[0][0]._graph:
            raise ValueError("only streams of one topology can be cogrouped")
        return CogroupedStream((*self._parts, (other, add)))

    def aggregate(self, store: str, initial: Callable[[], Any], *, value: Serde = JSON) -> Table:
        """Sum up all records of a key, in a store. Records without a key or a value are left out.

        Args:
            store: The name of the store.
            initial: Makes the aggregate of a key that has none.
            value: How aggregates are encoded in the store.

        Returns:
            Every change of an aggregate, with the highest timestamp of the key's records so far.
        """
        table: Table = self._together(passes_none=False).aggregate(store, initial, self._add, value=value)
        return table

    def windowed_by(self, windows: Windows, *, emit: Emit = Emit.ON_WINDOW_UPDATE) -> WindowedCogroupedStream[Stream]:
        """Divide the records of each key into windows of time, as `Stream.windowed_by` does.

        Stream time is the highest timestamp of all these streams' records here; in Kafka Streams each has its own.

        Args:
            windows: `TimeWindows`, `SlidingWindows` or `SessionWindows`.
            emit: Whether every change of a window is forwarded, or its result once, when it has closed.

        Returns:
            A stream with the method `aggregate`.
        """
        together = self._together(passes_none=not isinstance(windows, SlidingWindows))
        return WindowedCogroupedStream(together.windowed_by(windows, emit=emit), self._add)

    def _together(self, *, passes_none: bool) -> Any:
        marked = [
            one._then(stream_steps.marking(way, passes_none=passes_none)) for way, (one, _) in enumerate(self._parts)
        ]
        return marked[0].merge(*marked[1:])

    def _add(self, key: bytes, marked: tuple[int, Any], before: Any) -> Any:
        way, value = marked
        return self._parts[way][1](key, value, before)
