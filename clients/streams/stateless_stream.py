"""The steps of a stream that keep no state.

`Stream` has these, and those with a store. What each does is in `stream_steps`. Pure; source: KStream of Kafka Streams.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, Self, TypeVar

from anabranch.clients.streams import stream_steps
from anabranch.clients.streams.context import KeyValue, pass_on
from anabranch.clients.streams.serdes import BYTES, JSON, Serde
from anabranch.clients.streams.topology_graph import Graph, Node
from anabranch.protocol.suggestion import suggest_arguments

Result = TypeVar("Result", bound="StatelessStream[Any]")
"""The class of the results: `Stream`, whose module uses this one."""


@suggest_arguments
class StatelessStream(Generic[Result]):
    """A stream of records: the part of `Stream` that keeps nothing."""

    def __init__(self, graph: Graph, node: Node) -> None:
        self._graph = graph
        self._node = node

    def filter(self, keep: Callable[[Any, Any], bool]) -> Result:
        """Let some records pass.

        Args:
            keep: Is given key and value, and says whether the record passes.

        Returns:
            The records that passed.
        """
        return self._then(stream_steps.filtering(keep))

    def split(self, *predicates: Callable[[Any, Any], bool]) -> tuple[Result, ...]:
        """Divide the records among streams: each record goes to that of the first predicate that holds.

        Args:
            *predicates: Each is given key and value.

        Returns:
            A stream for each predicate, and a last one for the records for which none holds.
        """
        parent = self._graph.add(self._node, stream_steps.splitting(predicates))
        ways = range(len(predicates) + 1)
        branches = [self._graph.add(parent, Node(pass_on, label=f"branch {way}")) for way in ways]
        return tuple(self._result(branch) for branch in branches)

    def merge(self, *others: Result) -> Result:
        """Join the records of several streams into one, each as it comes.

        One task reads all of their topics. The topics need the same keys and partition counts, and the same resizes.

        Args:
            *others: Streams of the same topology.

        Returns:
            All records. Those of one stream keep their order; between streams there is none.

        Raises:
            ValueError: A stream is one of another topology.
        """
        if any(one._graph is not self._graph for one in others):
            raise ValueError("only streams of one topology can be merged")
        merged = Node(pass_on, label="merge")
        parts: tuple[StatelessStream[Any], ...] = (self, *others)
        for one in parts:
            one._graph.add(one._node, merged)
        return self._result(merged)

    def peek(self, look: Callable[[Any, Any], object]) -> Result:
        """Call a function for each record, such as one that logs or counts, and change nothing.

        Args:
            look: Is given key and value. It is called once more for a record that is processed once more.

        Returns:
            The same records.
        """
        return self._then(stream_steps.looking(look))

    def map_values(self, change: Callable[[Any], Any]) -> Result:
        """Change values, and leave keys as they are.

        Args:
            change: Is given a value and returns another.

        Returns:
            As many records, with the new values.
        """
        return self._then(stream_steps.changing_values(change))

    def flat_map_values(self, change: Callable[[Any], Iterable[Any]]) -> Result:
        """Make any number of records of each, under the same key.

        Args:
            change: Is given a value and returns the values of the new records.

        Returns:
            The new records.
        """
        return self._then(stream_steps.multiplying(change))

    def map(self, change: Callable[[Any, Any], KeyValue]) -> Result:
        """Change key and value of each record. `repartition` comes before the next store: new keys belong elsewhere.

        Args:
            change: Is given key and value and returns new ones, the key as bytes or None.

        Returns:
            As many records, with the new keys and values.
        """
        return self._then(stream_steps.changing_keys("map", lambda key, value: (change(key, value),)))

    def select_key(self, choose: Callable[[Any, Any], bytes | None]) -> Result:
        """Give each record another key. `repartition` comes before the next store: new keys belong elsewhere.

        Args:
            choose: Is given key and value and returns the new key, as bytes or None.

        Returns:
            As many records, with the new keys and the same values.
        """
        return self._then(stream_steps.changing_keys("select_key", lambda key, row: ((choose(key, row), row),)))

    def flat_map(self, change: Callable[[Any, Any], Iterable[KeyValue]]) -> Result:
        """Make any number of records of each, under any keys. `repartition` comes before the next store.

        Args:
            change: Is given key and value and returns the keys and values of the new records.

        Returns:
            The new records.
        """
        return self._then(stream_steps.changing_keys("flat_map", change))

    def repartition(self, name: str, *, value: Serde = BYTES) -> Result:
        """Send every record through a topic of the application's own, so that it comes to the task of its (new) key.

        Records without a key are left out, as in Kafka Streams, unless a left join follows.

        Args:
            name: The middle part of the topic's name, `<application id>-<name>-repartition`.
            value: How values are encoded for the topic, and decoded behind it.

        Returns:
            The same records, in the tasks of their keys.

        Raises:
            ValueError: The topology has a repartition of this name already.
        """
        return self._result(self._graph.add_repartition(self._node, name, value))

    def to(self, topic: str, *, value: Serde = JSON) -> Self:
        """Send every record to a topic, with the timestamp and the headers of the input record that it goes back to.

        Args:
            topic: Its name.
            value: How values are encoded.

        Returns:
            The stream itself.
        """
        self._graph.add_sink(self._node, topic, value)
        return self

    @abstractmethod
    def _result(self, node: Node) -> Result:
        """Return the stream behind a step."""

    def _then(self, node: Node) -> Result:
        return self._result(self._graph.add(self._node, node))
