"""The join of two streams within a window of time, in one task.

Each record is joined with the records of its key that the other side has had, and is kept for those that come. A result
has the higher timestamp of the two. A left join forwards records of the left side without a match, with None
in place of the other value, when their windows have closed; an outer join those of both sides. A record without a key
is joined with none at once; one without a value is left out.

A record that has expired when it comes (`join_window_store`) is counted (`Streams.late`), and joined only with records
that are kept. Pure; source: KStreamKStreamJoin and KStreamJoinWindow of Kafka Streams, and the names of their stores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from anabranch.clients.streams import join_window_store, outer_join_store
from anabranch.clients.streams.context import Context, Handler, forward_at
from anabranch.clients.streams.join_window_store import JoinWindowStore
from anabranch.clients.streams.outer_join_store import OuterJoinStore, Unjoined
from anabranch.clients.streams.serdes import Serde
from anabranch.clients.streams.topology_graph import Node
from anabranch.clients.streams.windows import JoinWindows


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamJoin:
    """What a join does: its windows, its function, and how the values of both sides are stored."""

    name: str
    windows: JoinWindows
    joined: Callable[[Any, Any], Any]
    left: bool
    outer: bool
    left_value: Serde
    right_value: Serde

    @property
    def stores(self) -> tuple[str, ...]:
        """The names of its stores: left side, right side, and records of both that have not been joined."""
        left = f"{self.name}{'-outer' * self.outer}-this-join-store"
        right = f"{self.name}{'-outer' * self.keeps_unjoined}-other-join-store"
        if not self.keeps_unjoined:
            return left, right
        return left, right, f"{self.name}-{'outer' if self.outer else 'left'}-shared-join-store"

    @property
    def keeps_unjoined(self) -> bool:
        """Whether records pass that are not joined."""
        return self.left or self.outer

    def side(self, *, is_left: bool) -> Node:
        """Return the step that a side's records go through first."""
        label = f"join {self.name}, {'left' if is_left else 'right'} side"
        return Node(lambda context, forward: lambda key, value: forward(key, (is_left, value)), label=label)

    def node(self) -> Node:
        """Return the step that both sides lead to."""
        suffixes = dict(zip(self.stores, (join_window_store.SUFFIX_BYTES,) * 2, strict=False))
        for unjoined in self.stores[2:]:
            suffixes[unjoined] = outer_join_store.SUFFIX_BYTES
        return Node(
            lambda context, forward: _TaskJoin(self, context, forward).handle,
            label=f"join {self.name}",
            stores=self.stores,
            private=self.stores,
            key_suffixes=suffixes,
            left=self.keeps_unjoined,
        )


class _TaskJoin:
    """A join in one task: its stores and the next step."""

    def __init__(self, join: StreamJoin, context: Context, forward: Handler) -> None:
        self._context = context
        self._forward = forward
        self._joined = join.joined
        self._windows = windows = join.windows
        self._serdes = (join.right_value, join.left_value)
        self._passes = (join.outer, join.keeps_unjoined)
        """Whether records pass that are not joined: of the right side, of the left side."""
        window = partial(JoinWindowStore, retention_ms=windows.retention_ms)
        left, right = (context.add_timed_store(name, window) for name in join.stores[:2])
        self._sides = (right, left)
        self._unjoined: OuterJoinStore | None = None
        for name in join.stores[2:]:
            self._unjoined = context.add_timed_store(name, partial(OuterJoinStore, open_ms=windows.open_ms))

    def handle(self, key: bytes | None, tagged: tuple[bool, Any]) -> None:
        """Handle a record of a side."""
        is_left, value = tagged
        timestamp_ms = self._context.timestamp_ms
        if self._unjoined is not None:
            self._unjoined.observe(timestamp_ms)
        if value is None:
            return
        if key is None:
            if self._passes[is_left]:
                self._forward(None, self._result(is_left, value, None))
            return
        encoded = self._serdes[is_left].encode(value)
        self._hand_on_closed(timestamp_ms, is_left)
        self._join(key, value, encoded, timestamp_ms, is_left)
        if not self._sides[is_left].put(key, encoded, timestamp_ms):
            self._context.drop_late()

    def _hand_on_closed(self, timestamp_ms: int, is_left: bool) -> None:
        """Hand on the records that were not joined and whose windows are closed, if this record is not late."""
        unjoined = self._unjoined
        if unjoined is None or timestamp_ms < unjoined.stream_time_ms:
            return
        for one, value in unjoined.take_closed(is_left=is_left):
            self._context.hand_on_late_result(
                f"the unmatched record at {one.timestamp_ms}", one.key, partial(self._hand_on_alone, one, value)
            )

    def _hand_on_alone(self, one: Unjoined, value: bytes) -> None:
        alone = self._serdes[one.is_left].decode(value)
        self._hand_on(one.key, self._result(one.is_left, alone, None), one.timestamp_ms)

    def _join(self, key: bytes, value: Any, encoded: bytes, timestamp_ms: int, is_left: bool) -> None:
        unjoined, decode = self._unjoined, self._serdes[not is_left].decode
        from_ms, to_ms = self._windows.around(timestamp_ms, is_left=is_left)
        found = self._sides[not is_left].fetch(key, from_ms, to_ms)
        for other_ms, other in found:
            if unjoined is not None:
                unjoined.remove(key, other_ms, is_left=not is_left)
            self._hand_on(key, self._result(is_left, value, decode(other)), max(timestamp_ms, other_ms))
        if found or unjoined is None or not self._passes[is_left]:
            return
        if to_ms < unjoined.stream_time_ms:
            self._hand_on(key, self._result(is_left, value, None), timestamp_ms)
        else:
            unjoined.put(key, encoded, timestamp_ms, is_left=is_left)

    def _result(self, is_left: bool, value: Any, other: Any) -> Any:
        return self._joined(value, other) if is_left else self._joined(other, value)

    def _hand_on(self, key: bytes, result: Any, timestamp_ms: int) -> None:
        forward_at(timestamp_ms, self._context, self._forward, key, result)
