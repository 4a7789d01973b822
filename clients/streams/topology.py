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

from anabranch.clients.streams import table_steps, topology_graph
from anabranch.clients.streams.global_table import GlobalTable
from anabranch.clients.streams.serdes import BYTES, Serde
from anabranch.clients.streams.stream import Stream, Table
from anabranch.clients.streams.topology_graph import Built, Graph
from anabranch.protocol.suggestion import suggest_arguments


@suggest_arguments
class Topology:
    """The program of a Streams application: its source topics, and the steps on their records.

    It is declared by calling methods on it and on their results, and given to `Streams`, which runs it. Nothing is read
    or checked against a cluster before that. Every instance of an application needs the same topology.
    """

    def __init__(self) -> None:
        self._graph = Graph()

    def stream(self, topic: str, *, value: Serde = BYTES) -> Stream:
        """Read the records of a topic.

        Args:
            topic: Its name; the topic has to exist when the application starts. A topic is read once: to do several
                things with its records, call several methods of the stream that is returned.
            value: How values are decoded. A record that cannot be is left to `StreamsConfig.deserialization_handler`.

        Returns:
            The records, each with its key as bytes and its decoded value; None as value is a deletion.
        """
        return Stream(self._graph, self._graph.add_source(topic, value))

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
        root = self._graph.add_source(topic, value)
        node = table_steps.source(name, value)
        return Table(self._graph, self._graph.add(root, node), name, value)

    def global_table(self, topic: str, *, store: str = "", value: Serde = BYTES) -> GlobalTable:
        """Read a topic as a global table: every instance keeps the latest value of each key of all partitions.

        It is filled up to the topic's end before the instance starts to work, and follows the topic from then on.
        There is no changelog: the topic is read again where the state directory lacks it, so it should be compacted.

        Args:
            topic: Its name; the topic has to exist when an instance starts. Records without a key are left out; None
                as value deletes the key.
            store: The name of the store; `<topic>-table` if empty.
            value: How values are decoded, where a stream is joined with them.

        Returns:
            What streams are joined with: `Stream.join_global`.

        Raises:
            ValueError: There is a global table with a store of this name.
        """
        name = store or f"{topic}-table"
        return GlobalTable(name, self._graph.add_global_table(topic, name, value))

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
        return topology_graph.build(self._graph, application_id)
