"""The graph of a topology's steps, and its division into subtopologies.

A *source* reads a topic, a *sink* writes to one, and the steps in between pass records to their children. Steps that
are connected by edges or by a shared store are a *subtopology*: task (s, p) runs subtopology s on partition p of its
sources, alone with its part of the stores. Records pass from one task to another through topics only. The same program
builds the same graph in every instance, so subtopologies are numbered by their first source.

Pure. Source: InternalTopologyBuilder of Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from anabranch.clients.streams.changelog import changelog_topic
from anabranch.clients.streams.serdes import BYTES, Serde, Undecodable
from anabranch.protocol.topic_name import is_legal

Handler = Callable[[bytes | None, Any], None]
"""Handles a record: its key and its decoded value."""
KeyValue = tuple[bytes | None, Any]
INTERNAL: Final = "\0"
"""The prefix of internal topic names: only the running task knows the application's id."""


class Store(Protocol):
    """A store of one task for a step: values by key, both bytes."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, None if it has none."""

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the value of a key; None deletes it."""

    def items(self) -> Iterable[tuple[bytes, bytes]]:
        """Return every key with its value, in no order."""


class Context(Protocol):
    """The task of a step: the interface of functions given to `Stream.process`."""

    timestamp_ms: int
    """The timestamp of the current record, and of its output."""

    def store(self, name: str) -> Store:
        """Return a store that the step has named. Raises KeyError for another one."""

    def emit(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        """Send a record; to an internal topic if the name begins with INTERNAL."""


Bind = Callable[[Context, Handler], Handler]
"""Creates a step for one task, from the task and the next step."""


@dataclass(eq=False, slots=True)
class Node:
    """One step. A source has a `topic`, and `value` decodes its values."""

    bind: Bind
    children: list[Node] = field(default_factory=list)
    stores: tuple[str, ...] = ()
    keeps: bool = False
    """Whether the store is private: no other step names it, and only joins read it."""
    joins: bool = False
    changes_keys: bool = False
    topic: str = ""
    internal: bool = False
    """Whether the topic is internal, with the application's prefix."""
    value: Serde = BYTES


@dataclass(frozen=True, slots=True)
class Subtopology:
    """A part of the graph that runs as one task per partition. Internal topics carry the application's prefix here."""

    index: int
    sources: tuple[str, ...]
    stores: tuple[str, ...]
    roots: Mapping[str, Node]

    def bind(self, context: Context) -> dict[str, Handler]:
        """Create the steps of one task: source topic -> the handler of a record's key and raw value."""
        return {topic: _decoding(root, _bound(root, context)) for topic, root in self.roots.items()}


@dataclass(frozen=True, slots=True)
class Built:
    """A whole topology, for one application."""

    subtopologies: tuple[Subtopology, ...]
    repartition_topics: Mapping[str, tuple[str, ...]]
    """Internal topic -> the sources of the subtopologies that write to it: it has as many partitions."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Every source topic."""
        return tuple(sorted({topic for one in self.subtopologies for topic in one.sources}))

    def subtopology_of(self, topic: str) -> Subtopology:
        """Return the subtopology that reads a topic."""
        return next(one for one in self.subtopologies if topic in one.sources)


def build(roots: Sequence[Node], repartitions: Mapping[str, Node], application_id: str) -> Built:
    """Cut a graph into subtopologies.

    Args:
        roots: The sources, in the order in which the application named them.
        repartitions: The sinks that write to topics of the application's own, by the names of these.
        application_id: What the names of such topics begin with.

    Raises:
        ValueError: A topic is read twice, two steps name one store, no topic can have the name that one of the
            application's own would get, or a store is used where keys have been changed and records may be with
            another key's task.
    """
    topics = [INTERNAL * root.internal + root.topic for root in roots]
    if len(set(topics)) != len(topics):
        raise ValueError(f"read a topic once, and reuse its stream: {sorted(topics)}")
    _check_stores(roots)
    _check_names(application_id, sorted({store for root in roots for store in _stores(root)}), sorted(repartitions))
    built = []
    for index, connected in enumerate(_connected_sources(roots)):
        named = {internal_name(application_id, root.topic) if root.internal else root.topic: root for root in connected}
        stores = sorted({store for root in connected for store in _stores(root)})
        built.append(Subtopology(index, tuple(sorted(named)), tuple(stores), named))
    written = {
        internal_name(application_id, name): tuple(
            sorted({topic for one in built if _writes(one, node) for topic in one.sources})
        )
        for name, node in repartitions.items()
    }
    return Built(tuple(built), written)


def internal_name(application_id: str, name: str) -> str:
    """Return Kafka Streams' name of a repartition topic."""
    return f"{application_id}-{name}-repartition"


def _bound(node: Node, context: Context) -> Handler:
    """Create a step with everything after it."""
    following = [_bound(child, context) for child in node.children]
    if len(following) == 1:
        return node.bind(context, following[0])

    def forward(key: bytes | None, value: Any) -> None:
        for step in following:
            step(key, value)

    return node.bind(context, forward)


def _decoding(root: Node, step: Handler) -> Handler:
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
            raise ValueError(f"two steps use the store {kept!r}: use one store per step, and `join` to read a table")
    for root in roots:
        for changing in [node for node in _reachable(root) if node.changes_keys]:
            stores = sorted(_stores(changing))
            if stores:
                raise ValueError(
                    f"keys are changed (map, flat_map) before the store {stores[0]!r}, and records stay with the task "
                    "of their old key: put `repartition` between them, or keep the keys with map_values"
                )


def _check_names(application_id: str, stores: Sequence[str], repartitions: Sequence[str]) -> None:
    for topic in [
        *(changelog_topic(application_id, store) for store in stores),
        *(internal_name(application_id, name) for name in repartitions),
    ]:
        if not is_legal(topic):
            raise ValueError(f"invalid topic name {topic!r}: names have letters, digits, '.', '_' and '-'")


def _connected_sources(roots: Sequence[Node]) -> list[list[Node]]:
    """Return connected sources, in the order in which they were first named."""
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
