"""The steps of a stream in one task: what each does with a record. `Stream` adds them to the graph.

Each function returns a step. Steps keep nothing here: those with a state of their own have modules of their own
(`table_steps`, `windowed_stream`, `stream_join`). Pure; source: KStreamFilter, KStreamFlatMap, KStreamKTableJoin and
their kind of Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from anabranch.clients.streams.context import Context, Handler, KeyValue, Timer, pass_on
from anabranch.clients.streams.serdes import Serde
from anabranch.clients.streams.topology_graph import Node


def filtering(keep: Callable[[Any, Any], bool]) -> Node:
    """Return a step that lets some records pass."""

    def bind(context: Context, forward: Handler) -> Handler:
        return lambda key, value: forward(key, value) if keep(key, value) else None

    return Node(bind, label="filter")


def splitting(predicates: Sequence[Callable[[Any, Any], bool]]) -> Node:
    """Return a step that sends each record to the child of the first predicate that holds, else to the last one."""

    def route(key: bytes | None, value: Any) -> int:
        return next((index for index, one in enumerate(predicates) if one(key, value)), len(predicates))

    return Node(pass_on, label="split", route=route)


def looking(look: Callable[[Any, Any], object]) -> Node:
    """Return a step that calls a function for each record, and passes it on."""

    def bind(context: Context, forward: Handler) -> Handler:
        def each(key: bytes | None, value: Any) -> None:
            look(key, value)
            forward(key, value)

        return each

    return Node(bind, label="peek")


def changing_values(change: Callable[[Any], Any]) -> Node:
    """Return a step that changes the value of each record."""

    def bind(context: Context, forward: Handler) -> Handler:
        return lambda key, value: forward(key, change(value))

    return Node(bind, label="map_values")


def multiplying(change: Callable[[Any], Iterable[Any]]) -> Node:
    """Return a step that makes any number of records of each, under the same key."""

    def bind(context: Context, forward: Handler) -> Handler:
        def each(key: bytes | None, value: Any) -> None:
            for one in change(value):
                forward(key, one)

        return each

    return Node(bind, label="flat_map_values")


def changing_keys(label: str, change: Callable[[Any, Any], Iterable[KeyValue]]) -> Node:
    """Return a step that makes any number of records of each, under any keys."""

    def bind(context: Context, forward: Handler) -> Handler:
        def each(key: bytes | None, value: Any) -> None:
            for pair in change(key, value):
                forward(*pair)

        return each

    return Node(bind, label=label, changes_keys=True)


def marking(way: int, *, passes_none: bool) -> Node:
    """Return a step that says of each record which of several cogrouped streams it is from."""

    def bind(context: Context, forward: Handler) -> Handler:
        return lambda key, value: forward(key, (way, value)) if passes_none or value is not None else None

    return Node(bind, label=f"cogrouped stream {way + 1}")


def joining(store: str, value: Serde, joined: Callable[[Any, Any], Any], *, left: bool) -> Node:
    """Return a step that joins each record with the row of its key in a table's store."""
    decode = value.decode

    def bind(context: Context, forward: Handler) -> Handler:
        rows = context.store(store)

        def one(key: bytes | None, value: Any) -> None:
            row = rows.get(key) if key is not None else None
            if value is None:
                return
            if row is not None or left:
                forward(key, joined(value, None if row is None else decode(row)))

        return one

    return Node(bind, label=f"join {store}", stores=(store,), joins=True, left=left)


def joining_global(
    store: str,
    value: Serde,
    key_of: Callable[[Any, Any], bytes | None],
    joined: Callable[[Any, Any], Any],
    *,
    left: bool,
) -> Node:
    """Return a step that joins each record with a row of a global table."""
    decode = value.decode

    def bind(context: Context, forward: Handler) -> Handler:
        rows = context.global_store(store)

        def one(key: Any, value: Any) -> None:
            if value is None:
                return
            other = key_of(key, value)
            if not isinstance(other, bytes | None):
                raise TypeError(f"key_of returns the key of a row as bytes, or None; it returned {other!r}")
            row = None if other is None else rows.get(other)
            if row is not None or left:
                forward(key, joined(value, None if row is None else decode(row)))

        return one

    return Node(bind, label=f"join global {store}", left=left)


def processing(
    step: Callable[[Context, Any, Any, Handler], None], stores: Sequence[str], timers: Sequence[Timer]
) -> Node:
    """Return a step that calls a function of the application with each record, and others at times that it sets."""

    def bind(context: Context, forward: Handler) -> Handler:
        for timer in timers:
            context.add_timers(timer.store, timer.clock, _firing(timer, context, forward))

        def each(key: Any, value: Any) -> None:
            timestamp_ms, headers = context.timestamp_ms, context.headers
            try:
                step(context, key, value, forward)
            finally:  # the steps beside this one get the record as it was
                context.timestamp_ms, context.headers = timestamp_ms, headers

        return each

    own = tuple(timer.store for timer in timers)
    names = (*stores, *own)
    return Node(bind, label=" ".join(("process", *names)), stores=names, private=own)


def _firing(timer: Timer, context: Context, forward: Handler) -> Callable[[bytes, int], None]:
    return lambda key, due_ms: timer.fire(context, key, due_ms, forward)
