"""What an application does with records, written down before anything runs.

A topology is a graph: sources, steps, stores, sinks. What hangs together by edges or by a shared store is a
*subtopology*; task (s, p) runs subtopology s on partition p of its sources, alone with its part of the stores. Nothing
passes between tasks but through topics. The same program builds the same graph everywhere, so subtopologies are
numbered by their first source.

    topology = Topology()
    flights = topology.stream("flights", value=JSON)
    planes = topology.table("planes", value=JSON)
    flights.join(planes, lambda flight, plane: {**flight, **plane}).to("flights-with-planes")
    flights.aggregate("air-time", lambda: 0, lambda key, flight, total: total + flight["air_time"]).to("air-time")

Keys are bytes and decide the partition. A step that changes keys (`map`, `flat_map`) must be followed by `repartition`
before a store is used. Pure; source: Kafka Streams' Topology and StreamsBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, Self

from anabranch.clients.streams.serdes import BYTES, JSON, Serde, Undecodable

Handler = Callable[[bytes | None, Any], None]
"""What a step does with a record: its key and its decoded value."""
KeyValue = tuple[bytes | None, Any]
INTERNAL: Final = "\0"
"""Before the name of a topic that is the application's own: only the running task knows the application's id."""


class Store(Protocol):
    """A store of one task, as a step sees it. A value of None is a deletion."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, None if there is none."""

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set or delete a key."""

    def items(self) -> Iterable[tuple[bytes, bytes]]:
        """Everything in it."""


class Context(Protocol):
    """The task that a step runs in."""

    timestamp_ms: int
    """Of the record that is being processed; what is sent on its account carries the same."""

    def store(self, name: str) -> Store:
        """One of the task's stores."""

    def emit(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        """Send a record; to one of the application's own topics if the name begins with INTERNAL."""


Bind = Callable[[Context, Handler], Handler]
"""Makes a step for one task: from the task, and from what comes after it."""


@dataclass(eq=False, slots=True)
class Node:
    """One step. `topic` if it is a source: `value` decodes what comes from there."""

    bind: Bind
    children: list[Node] = field(default_factory=list)
    stores: tuple[str, ...] = ()
    keeps: bool = False
    """Whether the store is its own: no other step names it, and only joins read it."""
    joins: bool = False
    changes_keys: bool = False
    topic: str = ""
    internal: bool = False
    """Whether the topic is the application's own, and named after it."""
    value: Serde = BYTES


@dataclass(frozen=True, slots=True)
class Subtopology:
    """What one kind of task does. Internal topics carry the application's prefix here."""

    index: int
    sources: tuple[str, ...]
    stores: tuple[str, ...]
    roots: Mapping[str, Node]

    def bind(self, context: Context) -> dict[str, Handler]:
        """The steps of one task: by source topic, what to do with a record's key and raw value."""
        return {topic: _source(root, _bound(root, context)) for topic, root in self.roots.items()}


@dataclass(frozen=True, slots=True)
class Built:
    """A whole topology, for one application."""

    subtopologies: tuple[Subtopology, ...]
    repartition_topics: Mapping[str, tuple[str, ...]]
    """Internal topic -> the sources of the subtopologies that write to it: it has as many partitions."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Every topic that is read."""
        return tuple(sorted({topic for one in self.subtopologies for topic in one.sources}))

    def subtopology_of(self, topic: str) -> Subtopology:
        """Who reads a topic."""
        return next(one for one in self.subtopologies if topic in one.sources)


class Topology:
    """See the module."""

    def __init__(self) -> None:
        self._roots: list[Node] = []
        self._repartitions: dict[str, Node] = {}

    def stream(self, topic: str, *, value: Serde = BYTES) -> Stream:
        """The records of a topic."""
        return Stream(self, self._source(topic, value))

    def table(self, topic: str, *, store: str = "", value: Serde = BYTES) -> Table:
        """The latest value of each key of a topic, in a store."""
        name = store or f"{topic}-table"
        root = self._source(topic, value)

        def bind(context: Context, forward: Handler) -> Handler:
            kept = context.store(name)

            def put(key: bytes | None, row: Any) -> None:
                if key is not None:
                    kept.put(key, None if row is None else value.encode(row))
                    forward(key, row)

            return put

        return Table(self, self.attach(root, Node(bind, stores=(name,), keeps=True)), name, value)

    def build(self, application_id: str) -> Built:
        """Cut the graph into subtopologies. ValueError when a topic is read twice, when two steps name one store, or
        when one is used where keys have been changed and records may be with another key's task."""
        topics = [INTERNAL * root.internal + root.topic for root in self._roots]
        if len(set(topics)) != len(topics):
            raise ValueError(f"a topic is read once, and its stream used again: {sorted(topics)}")
        _check_stores(self._roots)
        built = []
        for index, roots in enumerate(_connected(self._roots)):
            named = {internal_name(application_id, root.topic) if root.internal else root.topic: root for root in roots}
            stores = sorted({store for root in roots for store in _stores(root)})
            built.append(Subtopology(index, tuple(sorted(named)), tuple(stores), named))
        written = {
            internal_name(application_id, name): tuple(
                sorted({topic for one in built if _writes(one, node) for topic in one.sources})
            )
            for name, node in self._repartitions.items()
        }
        return Built(tuple(built), written)

    # for the handles below

    def attach(self, parent: Node, node: Node) -> Node:
        """Put a step behind another."""
        parent.children.append(node)
        return node

    def repartitioned(self, parent: Node, name: str, value: Serde) -> Node:
        """Send everything through a topic of the application's own."""
        if name in self._repartitions:
            raise ValueError(f"two repartitions are called {name!r}")
        self._repartitions[name] = self.attach(parent, Node(_sink(INTERNAL + name, value)))
        return self._source(name, value, internal=True)

    def _source(self, topic: str, value: Serde, *, internal: bool = False) -> Node:
        root = Node(lambda context, forward: forward, topic=topic, internal=internal, value=value)
        self._roots.append(root)
        return root


class Stream:
    """Records on their way; every method adds a step and returns what comes out of it."""

    def __init__(self, topology: Topology, node: Node) -> None:
        self._topology = topology
        self._node = node

    def filter(self, keep: Callable[[bytes | None, Any], bool]) -> Stream:
        """Only those for which `keep(key, value)` holds."""

        def bind(context: Context, forward: Handler) -> Handler:
            return lambda key, value: forward(key, value) if keep(key, value) else None

        return self._then(Node(bind))

    def map_values(self, change: Callable[[Any], Any]) -> Stream:
        """Other values, same keys."""

        def bind(context: Context, forward: Handler) -> Handler:
            return lambda key, value: forward(key, change(value))

        return self._then(Node(bind))

    def flat_map_values(self, change: Callable[[Any], Iterable[Any]]) -> Stream:
        """Any number of values for each, under the same key."""

        def bind(context: Context, forward: Handler) -> Handler:
            def each(key: bytes | None, value: Any) -> None:
                for one in change(value):
                    forward(key, one)

            return each

        return self._then(Node(bind))

    def map(self, change: Callable[[bytes | None, Any], KeyValue]) -> Stream:
        """Another key and value for each record."""
        return self.flat_map(lambda key, value: (change(key, value),))

    def flat_map(self, change: Callable[[bytes | None, Any], Iterable[KeyValue]]) -> Stream:
        """Any number of records for each."""

        def bind(context: Context, forward: Handler) -> Handler:
            def each(key: bytes | None, value: Any) -> None:
                for pair in change(key, value):
                    forward(*pair)

            return each

        return self._then(Node(bind, changes_keys=True))

    def repartition(self, name: str, *, value: Serde = BYTES) -> Stream:
        """Through an internal topic, so that each record meets its (new) key's task."""
        return Stream(self._topology, self._topology.repartitioned(self._node, name, value))

    def aggregate(
        self,
        store: str,
        initial: Callable[[], Any],
        add: Callable[[bytes, Any, Any], Any],
        *,
        value: Serde = JSON,
    ) -> Table:
        """`add(key, value, aggregate)` over all records of a key, kept in a store. None deletes the key.

        What comes out is every change of the aggregate. Records without a key are left out.
        """

        def bind(context: Context, forward: Handler) -> Handler:
            kept, encode, decode = context.store(store), value.encode, value.decode

            def one(key: bytes | None, row: Any) -> None:
                if key is None:
                    return
                before = kept.get(key)
                after = add(key, row, initial() if before is None else decode(before))
                kept.put(key, None if after is None else encode(after))
                forward(key, after)

            return one

        node = self._topology.attach(self._node, Node(bind, stores=(store,), keeps=True))
        return Table(self._topology, node, store, value)

    def count(self, store: str) -> Table:
        """How many records each key has."""
        return self.aggregate(store, lambda: 0, lambda key, value, count: count + 1)

    def join(self, table: Table, joined: Callable[[Any, Any], Any], *, left: bool = False) -> Stream:
        """Each record with the table's row of its key, as of now. Without a row: nothing, or `left`: with None.

        Both are read by the same task, so their topics are keyed alike, have as many partitions, and are resized alike.
        """
        name, decode = table.store, table.value.decode

        def bind(context: Context, forward: Handler) -> Handler:
            rows = context.store(name)

            def one(key: bytes | None, value: Any) -> None:
                row = rows.get(key) if key is not None else None
                if row is not None or left:
                    forward(key, joined(value, None if row is None else decode(row)))

            return one

        return self._then(Node(bind, stores=(name,), joins=True))

    def process(self, step: Callable[[Context, bytes | None, Any, Handler], None], *, stores: Sequence[str]) -> Stream:
        """Anything else: `step(context, key, value, forward)`, with these stores."""

        def bind(context: Context, forward: Handler) -> Handler:
            return lambda key, value: step(context, key, value, forward)

        return self._then(Node(bind, stores=tuple(stores)))

    def to(self, topic: str, *, value: Serde = JSON) -> Self:
        """Send every record to a topic."""
        self._topology.attach(self._node, Node(_sink(topic, value)))
        return self

    def _then(self, node: Node) -> Stream:
        return Stream(self._topology, self._topology.attach(self._node, node))


class Table(Stream):
    """A stream of changes that a store keeps the latest of."""

    def __init__(self, topology: Topology, node: Node, store: str, value: Serde) -> None:
        super().__init__(topology, node)
        self.store = store
        self.value = value


def internal_name(application_id: str, name: str) -> str:
    """Kafka Streams' name of a repartition topic."""
    return f"{application_id}-{name}-repartition"


def _sink(topic: str, value: Serde) -> Bind:
    def bind(context: Context, forward: Handler) -> Handler:
        emit, encode = context.emit, value.encode
        return lambda key, row: emit(topic, key, None if row is None else encode(row))

    return bind


def _bound(node: Node, context: Context) -> Handler:
    """A step with everything behind it."""
    following = [_bound(child, context) for child in node.children]
    if len(following) == 1:
        return node.bind(context, following[0])

    def forward(key: bytes | None, value: Any) -> None:
        for step in following:
            step(key, value)

    return node.bind(context, forward)


def _source(root: Node, step: Handler) -> Handler:
    decode = root.value.decode

    def one(key: bytes | None, raw: bytes | None) -> None:
        try:
            value = None if raw is None else decode(raw)
        except Exception as error:
            raise Undecodable from error
        step(key, value)

    return one


def _reachable(root: Node) -> list[Node]:
    found = [root]
    for node in found:
        found += [child for child in node.children if child not in found]
    return found


def _stores(root: Node) -> set[str]:
    return {store for node in _reachable(root) for store in node.stores}


def _check_stores(roots: Sequence[Node]) -> None:
    steps = list(dict.fromkeys(node for root in roots for node in _reachable(root)))
    named = [name for node in steps if not node.joins for name in node.stores]
    for kept in [name for node in steps if node.keeps for name in node.stores]:
        if named.count(kept) > 1:
            raise ValueError(f"two steps name the store {kept!r}: give each one of its own, and `join` to read a table")
    for root in roots:
        for changing in [node for node in _reachable(root) if node.changes_keys]:
            stores = sorted(_stores(changing))
            if stores:
                raise ValueError(
                    f"keys are changed (map, flat_map) before the store {stores[0]!r}, and records stay with the task "
                    "of their old key: put `repartition` between them, or keep the keys with map_values"
                )


def _connected(roots: Sequence[Node]) -> list[list[Node]]:
    """The sources that belong together, in the order in which they were first named."""
    groups: list[list[Node]] = []
    for root in roots:
        names = _stores(root)
        together = [group for group in groups if names & {store for one in group for store in _stores(one)}]
        if not together:
            groups.append([root])
            continue
        first = together[0]
        for other in together[1:]:
            first += other
            groups.remove(other)
        first.append(root)
    return groups


def _writes(subtopology: Subtopology, sink: Node) -> bool:
    return any(sink in _reachable(root) for root in subtopology.roots.values())
