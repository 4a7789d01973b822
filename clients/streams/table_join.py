"""The join of two tables in one task: a table of its own, with a row for each key that both sides have.

When a row of one side changes, its result is computed with the row that the other side has then, and kept. A left join
has a result for each row of the left side, an outer join for each row of either. A result has the higher timestamp of
its two rows. A row that is deleted deletes its result: that is forwarded also if there was none, unless both sides lack
the key in a left or outer join.

Whether a side has lacked the key is said by its change, which has the value before. The store of the results cannot say
it: where a table is joined with one that was made of it, one change comes from both sides.

Pure; source: KTableKTableInnerJoin, KTableKTableLeftJoin, KTableKTableRightJoin, KTableKTableOuterJoin and
KTableKTableJoinMerger of Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from anabranch.clients.streams.context import Change, Context, Handler, forward_at
from anabranch.clients.streams.serdes import Serde
from anabranch.clients.streams.table_steps import table
from anabranch.clients.streams.topology_graph import Node, send_old_values


@dataclass(slots=True, kw_only=True)
class TableJoin:
    """What a join does: its function, its store, and its sides, the right one first."""

    store: str
    joined: Callable[[Any, Any], Any]
    tables: tuple[Node, Node]
    """The steps that make the tables."""
    stores: tuple[str, str]
    """The stores of these."""
    serdes: tuple[Serde, Serde]
    """How values of these are encoded."""
    keeps: tuple[bool, bool]
    """Whether rows have a result that the other side lacks: of the right side, of the left side."""
    value: Serde
    _node: Node = field(init=False)

    def __post_init__(self) -> None:
        self._node = self._results()
        for side, keeps in zip(self.tables, self.keeps, strict=True):
            if keeps:
                send_old_values(side)

    def node(self) -> Node:
        """Return the step that both sides lead to: it keeps the results."""
        return self._node

    def side(self, *, is_left: bool) -> Node:
        """Return the step that the changes of a side go through: it looks the other side up."""
        other, decode, keeps_own = self.stores[not is_left], self.serdes[not is_left].decode, self.keeps[is_left]

        def bind(context: Context, forward: Handler) -> Handler:
            rows, sends_old = context.timestamped(other), self._node.sends_old

            def change(key: bytes, row: Change) -> None:
                found = rows.get_timestamped(key)
                if found is None and (not keeps_own or (row.new is None and row.old is None)):
                    return
                theirs, theirs_ms = (None, -1) if found is None else (decode(found[0]), found[1])
                old = self._result(is_left, row.old, theirs) if sends_old else None
                result = Change(self._result(is_left, row.new, theirs), old)
                forward_at(max(context.timestamp_ms, theirs_ms), context, forward, key, result)

            return change

        label = f"join {self.store}, {'left' if is_left else 'right'} side"
        return Node(bind, label=label, stores=(other,), joins=True, takes_changes=True)

    def _result(self, is_left: bool, row: Any, theirs: Any) -> Any:
        """Return the result of a side's row, with that of the other side; None if there is none."""
        if row is None and (theirs is None or not self.keeps[not is_left]):
            return None
        return self.joined(row, theirs) if is_left else self.joined(theirs, row)

    def _results(self) -> Node:
        encode = self.value.encode

        def bind(context: Context, forward: Handler) -> Handler:
            kept = context.timestamped(self.store)

            def put(key: bytes, result: Change) -> None:
                kept.put(key, None if result.new is None else encode(result.new), context.timestamp_ms)
                forward(key, result)

            return put

        return table(f"join {self.store}", self.store, bind, self.tables)
