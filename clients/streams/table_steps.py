"""The steps that make a table in one task: they keep the latest value of each key in a store, with its timestamp.

They forward changes: the new value with the one before, by which a join of tables decides whether there was a row.

    a source      keeps each record of a topic as the row of its key
    an aggregate  sums up the records of a key; the row has the highest timestamp of them

The join of two tables is one, too (`table_join`). Pure; source: KTableSource, KStreamAggregate and KStreamReduce of
Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from anabranch.clients.streams.context import Bind, Change, Context, Handler, forward_at
from anabranch.clients.streams.serdes import Serde
from anabranch.clients.streams.topology_graph import Node

NOTHING: Final = object()
"""The initial aggregate of a `reduce`: there is no value before the first one."""


def source(store: str, value: Serde) -> Node:
    """Return a step that keeps the records of a topic. One without a key is left out; None as value deletes the key."""

    def bind(context: Context, forward: Handler) -> Handler:
        kept = context.timestamped(store)

        def put(key: bytes | None, row: Any) -> None:
            if key is None:
                return
            stored = kept.get(key) if node.sends_old else None
            kept.put(key, None if row is None else value.encode(row), context.timestamp_ms)
            forward(key, Change(row, None if stored is None else value.decode(stored)))

        return put

    node = table(f"table {store}", store, bind)
    return node


def aggregate(store: str, initial: Callable[[], Any], add: Callable[[bytes, Any, Any], Any], value: Serde) -> Node:
    """Return a step that sums up the records of each key. Those without a key or a value are left out.

    The value before the first one is the initial aggregate, as in Kafka Streams.
    """

    def bind(context: Context, forward: Handler) -> Handler:
        kept, encode, decode = context.timestamped(store), value.encode, value.decode

        def one(key: bytes | None, row: Any) -> None:
            if key is None or row is None:
                return
            stored = kept.get_timestamped(key)
            before, newest_ms = (initial(), -1) if stored is None else (decode(stored[0]), stored[1])
            timestamp_ms = max(context.timestamp_ms, newest_ms)
            after = add(key, row, before)
            kept.put(key, None if after is None else encode(after), timestamp_ms)
            change = Change(after, None if before is NOTHING else before)
            forward_at(timestamp_ms, context, forward, key, change)

        return one

    return table(f"aggregate {store}", store, bind)


def table(label: str, store: str, bind: Bind, tables: tuple[Node, ...] = ()) -> Node:
    """Return a step that makes a table, with the store of its rows."""
    names = (store,)
    return Node(bind, label=label, stores=names, private=names, timestamped=names, is_table=True, tables=tables)
