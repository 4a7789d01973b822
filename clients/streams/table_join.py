"""The join of two tables in one task: a table of its own, with a row for each key that both sides have.

When a row of one side changes, its result is computed with the row that the other side has then, and kept. A left join
has a result for each row of the left side, an outer join for each row of either. A result has the higher timestamp of
its two rows. A row that is deleted deletes its result: that is handed on also if there was none, unless both sides lack
the key in a left or outer join.

Pure; source: KTableKTableInnerJoin, KTableKTableLeftJoin, KTableKTableRightJoin and KTableKTableOuterJoin of Kafka
Streams.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anabranch.clients.streams.context import Context, Handler, forward_at
from anabranch.clients.streams.serdes import Serde
from anabranch.clients.streams.topology_graph import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class TableJoin:
    """What a join does: its function, its store, and the stores of its sides."""

    store: str
    joined: Callable[[Any, Any], Any]
    stores: tuple[str, str]
    """The stores of the right side and of the left side."""
    serdes: tuple[Serde, Serde]
    """How values of these are encoded."""
    keeps: tuple[bool, bool]
    """Whether rows have a result that the other side lacks: of the right side, of the left side."""
    value: Serde

    def side(self, *, is_left: bool) -> Node:
        """Return the step that the changes of a side go through: it looks the other side up."""
        other, decode = self.stores[not is_left], self.serdes[not is_left].decode
        joined, keeps_own, keeps_other = self.joined, self.keeps[is_left], self.keeps[not is_left]

        def bind(context: Context, forward: Handler) -> Handler:
            rows = context.timestamped(other)

            def change(key: bytes, row: Any) -> None:
                found = rows.get_timestamped(key)
                if found is None and not keeps_own:
                    return
                theirs, theirs_ms = (None, -1) if found is None else (decode(found[0]), found[1])
                result = None
                if (row is not None or keeps_other) and (row is not None or theirs is not None):
                    result = joined(row, theirs) if is_left else joined(theirs, row)
                timestamp_ms = max(context.timestamp_ms, theirs_ms)
                forward_at(timestamp_ms, context, forward, key, (result, found is None))

            return change

        return Node(
            bind, label=f"join {self.store}, {'left' if is_left else 'right'} side", stores=(other,), joins=True
        )

    def node(self) -> Node:
        """Return the step that both sides lead to: it keeps the results."""
        encode, names = self.value.encode, (self.store,)

        def bind(context: Context, forward: Handler) -> Handler:
            kept = context.timestamped(self.store)

            def put(key: bytes, made: tuple[Any, bool]) -> None:
                result, alone = made
                if result is None and alone and kept.get(key) is None:
                    return
                kept.put(key, None if result is None else encode(result), context.timestamp_ms)
                forward(key, result)

            return put

        return Node(bind, label=f"join {self.store}", stores=names, private=names, timestamped=names)
