"""The steps of an application on a stream of records, and on a table of the latest value of each key.

Each method adds one step to the graph, and returns its result. Keys are bytes and decide the partition. A step that
changes keys (`map`, `flat_map`, `select_key`) must be followed by `repartition` before a store is used. Behind a
windowed aggregation keys are `Windowed`, so functions are typed as if keys were anything. Steps without a state are
declared in `stateless_stream`; what each step does is in `stream_steps` and `table_steps`. A table is a stream, and an
aggregated stream is a table: so both classes are here.

Pure; source: KStream and KTable of Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from anabranch.clients.streams import stream_steps, table_steps
from anabranch.clients.streams.cogrouped_stream import CogroupedStream
from anabranch.clients.streams.context import Context, Handler, Timer, pass_on
from anabranch.clients.streams.foreign_key_join import ForeignKeyJoin
from anabranch.clients.streams.global_table import GlobalTable
from anabranch.clients.streams.serdes import JSON, Serde
from anabranch.clients.streams.stateless_stream import StatelessStream
from anabranch.clients.streams.stream_join import StreamJoin
from anabranch.clients.streams.table_join import TableJoin
from anabranch.clients.streams.topology_graph import Graph, Node
from anabranch.clients.streams.windowed_aggregation import Add, Emit, LateTopic
from anabranch.clients.streams.windowed_stream import WindowedStream
from anabranch.clients.streams.windows import JoinWindows, Windows
from anabranch.protocol.suggestion import suggest_arguments


@suggest_arguments
class Stream(StatelessStream["Stream"]):
    """A stream of records. Every method adds a step, and returns its result.

    Functions are called in the order of a partition's records, while the instance runs. A record for which one raises
    is handled by `StreamsConfig.processing_handler`. They must not block, nor start anything that outlives the call:
    after a crash a record may be processed once more.
    """

    def aggregate(
        self,
        store: str,
        initial: Callable[[], Any],
        add: Callable[[bytes, Any, Any], Any],
        *,
        value: Serde = JSON,
    ) -> Table:
        """Sum up all records of a key, in a store. Records without a key or a value are left out, as in Kafka Streams.

        Args:
            store: The name of the store.
            initial: Makes the aggregate of a key that has none.
            add: Is given key, value and aggregate, and returns the new aggregate; None deletes it.
            value: How aggregates are encoded in the store.

        Returns:
            Every change of an aggregate, with the highest timestamp of the key's records so far.
        """
        node = table_steps.aggregate(store, initial, add, value)
        return Table(self._graph, self._graph.add(self._node, node), store, value)

    def count(self, store: str) -> Table:
        """Count the records of each key, in a store.

        Args:
            store: The name of the store.

        Returns:
            Every change of a count.
        """
        return self.aggregate(store, lambda: 0, lambda key, value, count: count + 1)

    def reduce(self, store: str, combine: Callable[[Any, Any], Any], *, value: Serde = JSON) -> Table:
        """Combine all values of a key into one, in a store. The first value is kept as it is.

        Args:
            store: The name of the store.
            combine: Is given the value so far and the next one, and returns the new value; None deletes it.
            value: How values are encoded in the store.

        Returns:
            Every change of a key's value.
        """
        nothing = table_steps.NOTHING
        return self.aggregate(
            store,
            lambda: nothing,
            lambda key, row, before: row if before is nothing else combine(before, row),
            value=value,
        )

    def cogroup(self, add: Add) -> CogroupedStream[Stream, Table]:
        """Begin to sum up the records of several streams in one aggregate per key.

        One task reads all of their topics. The topics need the same keys and partition counts, and the same resizes.

        Args:
            add: Is given key, value and aggregate for each record of this stream, and returns the new aggregate; None
                deletes it.

        Returns:
            What `cogroup`, `aggregate` and `windowed_by` are called on.
        """
        return CogroupedStream(((self, add),))

    def windowed_by(
        self, windows: Windows, *, emit: Emit = Emit.ON_WINDOW_UPDATE, late: LateTopic | None = None
    ) -> WindowedStream[Stream]:
        """Divide the records of each key into windows of time, by their timestamps, to be aggregated.

        A window closes when stream time, the highest timestamp of the task's records here, has passed its end and its
        grace period. Later records of it are left out and counted (`Streams.late`). Stream time is state, like windows:
        a crash, a rebalance or a resize opens no closed window.

        Args:
            windows: `TimeWindows`, `SlidingWindows` or `SessionWindows`.
            emit: Whether every change of a window is forwarded, or its result once, when it has closed.
            late: A topic for records that are left out, once each, with their key, value, timestamp and headers.

        Returns:
            A stream with the methods `aggregate`, `count` and `reduce`.
        """
        return WindowedStream(self._with_windowed_keys, windows, emit, late)

    def join(self, table: Table, joined: Callable[[Any, Any], Any], *, left: bool = False) -> Stream:
        """Join each record with the row that a table has for its key when the record is processed.

        Records without a value are left out, as in Kafka Streams. One task reads both. Their topics need
        the same keys and partition counts, and the same resizes.

        Args:
            table: Where rows are looked up.
            joined: Is given the record's value and the row, and returns the new value.
            left: Whether records without a row pass, too, with None as the row.

        Returns:
            The records with their new values, under the same keys.

        Raises:
            TypeError: The table is a global one, or no table.
            ValueError: The table is one of another topology.
        """
        if isinstance(table, GlobalTable):
            raise TypeError("join a global table with `join_global`, which says what the key of the row is")
        if not isinstance(table, Table):
            raise TypeError(
                "`join` needs the result of `Topology.table`, or another table: join a stream by `join_within`"
            )
        if table._graph is not self._graph:
            raise ValueError("only streams and tables of one topology can be joined")
        return self._then(stream_steps.joining(table.store, table.value, joined, left=left))

    def join_global(
        self,
        table: GlobalTable,
        key_of: Callable[[Any, Any], bytes | None],
        joined: Callable[[Any, Any], Any],
        *,
        left: bool = False,
    ) -> Stream:
        """Join each record with any row that a global table has when the record is processed.

        Every instance has the whole table, so the topics may have different keys and partition counts. A change of the
        table causes no output. Records without a value are left out, as in Kafka Streams.

        Args:
            table: Where rows are looked up.
            key_of: Is given key and value of the record, and returns the key of the row; None if it has none.
            joined: Is given the record's value and the row, and returns the new value.
            left: Whether records without a row pass, too, with None as the row.

        Returns:
            The records with their new values, under the same keys.

        Raises:
            TypeError: The table is no global one.
            ValueError: The table is one of another topology.
        """
        if not isinstance(table, GlobalTable):
            raise TypeError("`join_global` needs the result of `Topology.global_table`: join a table with `join`")
        if self._graph.global_tables.get(table.store) is not table.source:
            raise ValueError("only streams and global tables of one topology can be joined")
        return self._then(stream_steps.joining_global(table.store, table.source.value, key_of, joined, left=left))

    def join_within(
        self,
        other: Stream,
        windows: JoinWindows,
        joined: Callable[[Any, Any], Any],
        *,
        store: str,
        left: bool = False,
        outer: bool = False,
        value: Serde = JSON,
        other_value: Serde = JSON,
    ) -> Stream:
        """Join each record with those of another stream that have its key and a timestamp near its own.

        Every pair is joined once, when the later record of the two is processed. Its result has the higher timestamp.
        Records without a value are left out. A record without a match is forwarded at the first record after stream
        time, the highest timestamp of both streams' records here, has passed its window and the grace period. Kept
        records and stream time are state. One task reads both streams. Their topics need the same keys and partition
        counts, and the same resizes.

        Args:
            other: A stream of the same topology, the right side.
            windows: How far apart the timestamps of two records may be.
            joined: Is given the values of the two records, and returns the new value.
            store: What the names of the stores begin with, as in Kafka Streams.
            left: Whether records of this stream pass that nothing is joined with, with None as the other value.
            outer: Whether records of either stream do.
            value: How values of this stream are encoded in the store.
            other_value: How values of the other stream are.

        Returns:
            The results, under the same keys.

        Raises:
            ValueError: The other stream is one of another topology.
        """
        if other._graph is not self._graph:
            raise ValueError("only streams of one topology can be joined")
        values = {"left_value": value, "right_value": other_value}
        join = StreamJoin(name=store, windows=windows, joined=joined, left=left, outer=outer, **values)
        return Stream(self._graph, self._join(other, join))

    def process(
        self,
        step: Callable[[Context, Any, Any, Handler], None],
        *,
        stores: Sequence[str] = (),
        timers: Sequence[Timer] = (),
    ) -> Stream:
        """Do anything else with each record, and at times that are set for keys.

        Timers are state: they survive crashes, and move with their keys. A timer of stream time is due after the record
        whose timestamp reaches it, before the next one. A timer of wall-clock time is due within the commit interval.

        Args:
            step: Is given the task's context, key, value, and a function that forwards a key and a value.
            stores: The names of the stores that the step uses, by `context.store(name)`. Their keys should be those of
                the records: a resize moves the entries of a store by the hash of their keys.
            timers: The timers that the step sets, by `context.timers(name).set(key, due_ms)`, with the same keys.

        Returns:
            The records that the step and its timers forward.
        """
        return self._then(stream_steps.processing(step, stores, timers))

    def _join(self, other: Stream, join: StreamJoin | TableJoin) -> Node:
        node = join.node()
        for one, is_left in ((self, True), (other, False)):
            self._graph.add(self._graph.add(one._node, join.side(is_left=is_left)), node)
        return node

    def _with_windowed_keys(self, node: Node) -> Stream:
        return self._then(node)._then(Node(pass_on, label="windowed keys", changes_keys=True))

    def _result(self, node: Node) -> Stream:
        return Stream(self._graph, node)


@suggest_arguments
class Table(Stream):
    """A table: its store keeps the latest value of each key. As a stream, it has every change.

    Attributes:
        store: The name of the store.
        value: How values are encoded in it.
    """

    def __init__(self, graph: Graph, node: Node, store: str, value: Serde) -> None:
        super().__init__(graph, node)
        self.store = store
        self.value = value

    def join_table(
        self,
        other: Table,
        joined: Callable[[Any, Any], Any],
        *,
        store: str,
        left: bool = False,
        outer: bool = False,
        value: Serde = JSON,
    ) -> Table:
        """Join the rows of two tables that have the same key, into a table of the results.

        A change of either table changes the result. Both tables are kept by the same task. So their topics are keyed
        alike, have as many partitions, and are resized alike.

        Args:
            other: Another table of the same topology, the right side.
            joined: Is given the values of the two rows, and returns the result. Where this table is joined further, it
                is called for the rows before a change, too.
            store: The name of the store of the results.
            left: Whether rows of this table have a result that the other lacks, with None as the other value.
            outer: Whether rows of either table do.
            value: How results are encoded in the store.

        Returns:
            Every change of a result, with the higher timestamp of its two rows.

        Raises:
            TypeError: The other table is a global one, or no table.
            ValueError: The other table is this one, or one of another topology.
        """
        if not isinstance(other, Table):
            raise TypeError("`join_table` needs the result of `Topology.table`, or another table that is no global one")
        if other._graph is not self._graph:
            raise ValueError("only tables of one topology can be joined")
        if other.store == self.store:
            reason = "the result of a deleted row would stay: compute it of each row with map_values"
            raise ValueError(f"the table {self.store!r} would be joined with itself, and {reason}")
        join = TableJoin(
            store=store,
            joined=joined,
            tables=(other._node, self._node),
            stores=(other.store, self.store),
            serdes=(other.value, self.value),
            keeps=(outer, left or outer),
            value=value,
        )
        return Table(self._graph, self._join(other, join), store, value)

    def join_foreign(
        self,
        other: Table,
        foreign_key: Callable[[bytes, Any], bytes | None],
        joined: Callable[[Any, Any], Any],
        *,
        store: str,
        left: bool = False,
        value: Serde = JSON,
    ) -> Table:
        """Join each row with the row of another table that its value names, into a table of the results.

        A change of a row changes its result; a change of a row of the other table changes the results of all rows that
        name it. The topics may have different keys and partition counts, and each can be resized alone: both tables are
        copied through internal topics of the application.

        Args:
            other: A table of the same topology, the right side; also this one.
            foreign_key: Is given key and value of a row, and returns the key of the other row; None if it names none.
                It must return the same each time.
            joined: Is given the values of the two rows, and returns the result.
            store: The name of the store of the results, with which the names of other stores and topics begin.
            left: Whether a row has a result without another one, with None as the other value.
            value: How results are encoded in the store.

        Returns:
            Every change of a result, under the key of this table's row.

        Raises:
            TypeError: The other table is a global one, or no table.
            ValueError: The other table is one of another topology, or there is a join with this store.
        """
        if not isinstance(other, Table):
            raise TypeError(
                "`join_foreign` needs the result of `Topology.table`, or another table that is no global one"
            )
        if other._graph is not self._graph:
            raise ValueError("only tables of one topology can be joined")
        sides = {"left_value": self.value, "right_value": other.value}
        join = ForeignKeyJoin(store=store, foreign_key=foreign_key, joined=joined, left=left, value=value, **sides)
        return Table(self._graph, join.add(self._graph, self._node, other._node), store, value)
