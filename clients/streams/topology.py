"""The topology of an application: its processing steps, declared before anything runs.

    topology = Topology()
    flights = topology.stream("flights", value=JSON)
    planes = topology.table("planes", value=JSON)
    flights.join(planes, lambda flight, plane: {**flight, **plane}).to("flights-with-planes")
    flights.aggregate("air-time", lambda: 0, lambda key, flight, total: total + flight["air_time"]).to("air-time")

Keys are bytes and decide the partition. A step that changes keys (`map`, `flat_map`) must be followed by `repartition`
before a store is used. `topology_graph` says how the steps are cut into tasks. Pure; source: Kafka Streams' Topology
and StreamsBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

from anabranch.clients.streams import topology_graph
from anabranch.clients.streams.serdes import BYTES, JSON, Serde
from anabranch.clients.streams.topology_graph import INTERNAL, Bind, Built, Context, Handler, KeyValue, Node
from anabranch.protocol.suggestion import suggest_arguments


@suggest_arguments
class Topology:
    """The program of a Streams application: its source topics, and the steps on their records.

    It is declared by calling methods on it and on their results, and given to `Streams`, which runs it. Nothing is read
    or checked against a cluster before that. Every instance of an application needs the same topology.
    """

    def __init__(self) -> None:
        self._roots: list[Node] = []
        self._repartitions: dict[str, Node] = {}

    def stream(self, topic: str, *, value: Serde = BYTES) -> Stream:
        """Read the records of a topic.

        Args:
            topic: Its name; the topic has to exist when the application starts. A topic is read once: to do several
                things with its records, call several methods of the stream that is returned.
            value: How values are decoded. A record that cannot be is left to `StreamsConfig.deserialization_handler`.

        Returns:
            The records, each with its key as bytes and its decoded value; None as value is a deletion.
        """
        return Stream(self, self._source(topic, value))

    def table(self, topic: str, *, store: str = "", value: Serde = BYTES) -> Table:
        """Read a topic as a table: the latest value of each key, kept in a store.

        Args:
            topic: Its name, as for `stream`. Records without a key are left out; None as value deletes the key.
            store: The name of the store; `<topic>-table` if empty.
            value: How values are decoded, and encoded for the store.

        Returns:
            Every change of the table; other streams can be joined with it.
        """
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
        """Check the topology, and cut it into the parts that run as tasks. `Streams` does it by itself.

        Args:
            application_id: The application's name, with which the names of its own topics begin.

        Returns:
            The parts, with the topics and stores of each.

        Raises:
            ValueError: A topic is read twice, two steps name one store, or a store is used behind `map` or `flat_map`
                without `repartition` in between, so that records would be with the task of another key.
        """
        return topology_graph.build(self._roots, self._repartitions, application_id)

    # interface of `Stream` and `Table`

    def attach(self, parent: Node, node: Node) -> Node:
        """Add a step after another one, and return it."""
        parent.children.append(node)
        return node

    def add_repartition(self, parent: Node, name: str, value: Serde) -> Node:
        """Add a repartition topic after a step, and return the source that reads it."""
        if name in self._repartitions:
            raise ValueError(f"two repartitions are called {name!r}")
        self._repartitions[name] = self.attach(parent, Node(_sink(INTERNAL + name, value)))
        return self._source(name, value, internal=True)

    def _source(self, topic: str, value: Serde, *, internal: bool = False) -> Node:
        root = Node(lambda context, forward: forward, topic=topic, internal=internal, value=value)
        self._roots.append(root)
        return root


@suggest_arguments
class Stream:
    """A stream of records. Every method adds a step, and returns its result.

    Functions are called in the order of a partition's records, while the instance runs. A record for which one raises
    is handled by `StreamsConfig.processing_handler`. They must not block, nor start anything that outlives the call:
    after a crash a record may be processed once more.
    """

    def __init__(self, topology: Topology, node: Node) -> None:
        self._topology = topology
        self._node = node

    def filter(self, keep: Callable[[bytes | None, Any], bool]) -> Stream:
        """Let some records pass.

        Args:
            keep: Is given key and value, and says whether the record passes.

        Returns:
            The records that passed.
        """

        def bind(context: Context, forward: Handler) -> Handler:
            return lambda key, value: forward(key, value) if keep(key, value) else None

        return self._then(Node(bind))

    def map_values(self, change: Callable[[Any], Any]) -> Stream:
        """Change values, and leave keys as they are.

        Args:
            change: Is given a value and returns another.

        Returns:
            As many records, with the new values.
        """

        def bind(context: Context, forward: Handler) -> Handler:
            return lambda key, value: forward(key, change(value))

        return self._then(Node(bind))

    def flat_map_values(self, change: Callable[[Any], Iterable[Any]]) -> Stream:
        """Make any number of records of each, under the same key.

        Args:
            change: Is given a value and returns the values of the new records.

        Returns:
            The new records.
        """

        def bind(context: Context, forward: Handler) -> Handler:
            def each(key: bytes | None, value: Any) -> None:
                for one in change(value):
                    forward(key, one)

            return each

        return self._then(Node(bind))

    def map(self, change: Callable[[bytes | None, Any], KeyValue]) -> Stream:
        """Change key and value of each record. `repartition` comes before the next store: new keys belong elsewhere.

        Args:
            change: Is given key and value and returns new ones, the key as bytes or None.

        Returns:
            As many records, with the new keys and values.
        """
        return self.flat_map(lambda key, value: (change(key, value),))

    def flat_map(self, change: Callable[[bytes | None, Any], Iterable[KeyValue]]) -> Stream:
        """Make any number of records of each, under any keys. `repartition` comes before the next store.

        Args:
            change: Is given key and value and returns the keys and values of the new records.

        Returns:
            The new records.
        """

        def bind(context: Context, forward: Handler) -> Handler:
            def each(key: bytes | None, value: Any) -> None:
                for pair in change(key, value):
                    forward(*pair)

            return each

        return self._then(Node(bind, changes_keys=True))

    def repartition(self, name: str, *, value: Serde = BYTES) -> Stream:
        """Send every record through a topic of the application's own, so that it comes to the task of its (new) key.

        Args:
            name: The middle part of the topic's name, `<application id>-<name>-repartition`.
            value: How values are encoded for the topic, and decoded behind it.

        Returns:
            The same records, in the tasks of their keys.

        Raises:
            ValueError: The topology has a repartition of this name already.
        """
        return Stream(self._topology, self._topology.add_repartition(self._node, name, value))

    def aggregate(
        self,
        store: str,
        initial: Callable[[], Any],
        add: Callable[[bytes, Any, Any], Any],
        *,
        value: Serde = JSON,
    ) -> Table:
        """Sum up all records of a key, in a store. Records without a key are left out.

        Args:
            store: The name of the store.
            initial: Makes the aggregate of a key that has none.
            add: Is given key, value and aggregate, and returns the new aggregate; None deletes it.
            value: How aggregates are encoded in the store.

        Returns:
            Every change of an aggregate.
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
        """Count the records of each key, in a store.

        Args:
            store: The name of the store.

        Returns:
            Every change of a count.
        """
        return self.aggregate(store, lambda: 0, lambda key, value, count: count + 1)

    def join(self, table: Table, joined: Callable[[Any, Any], Any], *, left: bool = False) -> Stream:
        """Join each record with the row that a table has for its key when the record is processed.

        Both are read by the same task. So their topics are keyed alike, have as many partitions, and are resized alike.

        Args:
            table: Where rows are looked up.
            joined: Is given the record's value and the row, and returns the new value.
            left: Whether records without a row pass, too, with None as the row.

        Returns:
            The records with their new values, under the same keys.
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
        """Do anything else with each record.

        Args:
            step: Is given the task's context, key, value, and a function that hands a key and a value on.
            stores: The names of the stores that the step uses, by `context.store(name)`. Their keys should be those of
                the records: a resize moves the entries of a store by the hash of their keys.

        Returns:
            What the step hands on.
        """

        def bind(context: Context, forward: Handler) -> Handler:
            return lambda key, value: step(context, key, value, forward)

        return self._then(Node(bind, stores=tuple(stores)))

    def to(self, topic: str, *, value: Serde = JSON) -> Self:
        """Send every record to a topic, with the timestamp of the input record that it goes back to.

        Args:
            topic: Its name.
            value: How values are encoded.

        Returns:
            The stream itself.
        """
        self._topology.attach(self._node, Node(_sink(topic, value)))
        return self

    def _then(self, node: Node) -> Stream:
        return Stream(self._topology, self._topology.attach(self._node, node))


@suggest_arguments
class Table(Stream):
    """A stream of changes of which a store keeps the latest for each key.

    Attributes:
        store: The name of the store.
        value: How values are encoded in it.
    """

    def __init__(self, topology: Topology, node: Node, store: str, value: Serde) -> None:
        super().__init__(topology, node)
        self.store = store
        self.value = value


def _sink(topic: str, value: Serde) -> Bind:
    def bind(context: Context, forward: Handler) -> Handler:
        emit, encode = context.emit, value.encode
        return lambda key, row: emit(topic, key, None if row is None else encode(row))

    return bind
