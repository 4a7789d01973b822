"""The graph of a topology's steps, and its division into subtopologies.

A *source* reads a topic, a *sink* writes to one, and the steps in between pass records to their children. Steps that
are connected by edges or by a shared store are a *subtopology*: task (s, p) runs subtopology s on partition p of its
sources, alone with its part of the stores. Records pass from one task to another through topics only. The same program
builds the same graph in every instance, so subtopologies are numbered by their first source.

Pure. Source: InternalTopologyBuilder of Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from anabranch.clients.streams.changelog import changelog_topic
from anabranch.clients.streams.context import Bind, Context, Handler, pass_on
from anabranch.clients.streams.serdes import BYTES, Serde, Undecodable
from anabranch.clients.streams.windows import Windows, encode_key
from anabranch.protocol.topic_name import is_legal

INTERNAL: Final = "\0"
"""The prefix of internal topic names: only the running task knows the application's id."""
GLOBAL: Final = -1
"""The number of the parts that are no subtopologies: each is a global table, which every instance has whole."""


@dataclass(eq=False, slots=True)
class Node:
    """One step. A source has a `topic`, and `value` decodes its values."""

    bind: Bind
    label: str = ""
    """What it does, for `Built.describe`."""
    children: list[Node] = field(default_factory=list)
    route: Callable[[Any, Any], int] | None = None
    """Chooses the child that gets a record, by index; without it every child does."""
    stores: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    """Those stores that no other step names; only joins read them."""
    timestamped: tuple[str, ...] = ()
    """Those stores that keep the timestamps of values."""
    key_suffixes: Mapping[str, int] = field(default_factory=dict)
    """The number of bytes that keys of a store have behind the record's key, where they have some."""
    windows: Mapping[str, Windows] = field(default_factory=dict)
    """The windows of a store that keeps an aggregate per window."""
    joins: bool = False
    is_table: bool = False
    """Whether it forwards changes of a table (`Change`); steps that do not take them get the new values."""
    takes_changes: bool = False
    tables: tuple[Node, ...] = ()
    """The tables that a table is joined of."""
    sends_old: bool = False
    """Whether a step behind this table asks for the values before: to look them up may cost a read."""
    left: bool = False
    """Whether it is a join that records without a key pass."""
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
    key_suffixes: Mapping[str, int] = field(default_factory=dict)
    """The number of bytes that keys of a store have behind the record's key, where they have some."""
    timestamped: frozenset[str] = frozenset()
    """Those stores that keep the timestamps of values."""
    windows: Mapping[str, Windows] = field(default_factory=dict)
    """The windows of the stores that keep an aggregate per window."""

    def record_key(self, store: str, key: bytes) -> bytes:
        """Return the record's key of a key in a store: it decides where the entry belongs."""
        suffix = self.key_suffixes.get(store, 0)
        return key[:-suffix] if suffix else key

    def bind(self, context: Context) -> dict[str, Handler]:
        """Create the steps of one task: source topic -> the handler of a record's key and raw value."""
        bound: dict[Node, Handler] = {}
        return {topic: _decoding(root, _bound(root, context, bound)) for topic, root in self.roots.items()}


@dataclass(frozen=True, slots=True)
class Built:
    """A whole topology, for one application."""

    subtopologies: tuple[Subtopology, ...]
    repartition_topics: Mapping[str, tuple[str, ...]]
    """Internal topic -> sources, mostly of the subtopologies that write to it: it is as wide as the widest of them."""
    global_tables: tuple[Subtopology, ...] = ()
    """The global tables, each with one source and one store. No task runs them."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Every source topic, without those of global tables."""
        return tuple(sorted({topic for one in self.subtopologies for topic in one.sources}))

    def describe(self) -> str:
        """Return the steps as text: a tree per source, and the stores of each part."""
        lines: list[str] = []
        for one in self.subtopologies:
            lines.append(f"subtopology {one.index}" + (f", stores {', '.join(one.stores)}" if one.stores else ""))
            shown: dict[Node, int] = {}
            for topic, root in sorted(one.roots.items()):
                _describe(root, f"source {topic}", 1, shown, lines)
        lines += [f"global table {one.stores[0]}, source {one.sources[0]}" for one in self.global_tables]
        return "\n".join(lines)

    def subtopology_of(self, topic: str) -> Subtopology:
        """Return the subtopology that reads a topic."""
        return next(one for one in self.subtopologies if topic in one.sources)


class Graph:
    """The steps of an application while it is declared."""

    def __init__(self) -> None:
        self.roots: list[Node] = []
        """The sources, in the order in which the application named them."""
        self.global_tables: dict[str, Node] = {}
        """The sources of global tables, by the names of their stores."""
        self.repartitions: dict[str, Node] = {}
        """The topics of the application's own, each with a step: it is as wide as that one's widest source."""
        self._readers: dict[Node, Node] = {}
        """The sources that read what these write."""

    def add_source(self, topic: str, value: Serde, *, internal: bool = False) -> Node:
        """Add a source, and return it."""
        root = Node(pass_on, label=f"source {topic}", topic=topic, internal=internal, value=value)
        self.roots.append(root)
        return root

    def add_global_table(self, topic: str, store: str, value: Serde) -> Node:
        """Add a global table, and return its source.

        Raises:
            ValueError: There is one with a store of this name.
        """
        if store in self.global_tables:
            raise ValueError(f"two global tables have the store {store!r}: name another one with `store`")
        source = self.global_tables[store] = Node(pass_on, label=f"source {topic}", topic=topic, value=value)
        return source

    def add(self, parent: Node, node: Node) -> Node:
        """Add a step after another one, and return it."""
        parent.children.append(node)
        return node

    def add_sink(self, parent: Node, topic: str, value: Serde) -> Node:
        """Add a step that sends records to a topic, and return it."""

        def bind(context: Context, forward: Handler) -> Handler:
            emit, encode = context.emit, value.encode
            return lambda key, row: emit(topic, encode_key(key), None if row is None else encode(row))

        return self.add(parent, Node(bind, label=f"sink {topic.removeprefix(INTERNAL)}"))

    def add_repartition(self, parent: Node, name: str, value: Serde) -> Node:
        """Add a repartition topic after a step, and return the source that reads it.

        Raises:
            ValueError: There is one of this name.
        """
        if name in self.repartitions:
            raise ValueError(f"two repartitions are called {name!r}")
        source = self.add_source(name, value, internal=True)

        def bind(context: Context, forward: Handler) -> Handler:
            if self._has_left_join(source):
                return forward
            return lambda key, value: None if key is None else forward(key, value)

        keyed = self.add(parent, Node(bind, label="repartition"))
        self.repartitions[name] = sink = self.add_sink(keyed, INTERNAL + name, value)
        self._readers[sink] = source
        return source

    def add_internal_topic(self, name: str, value: Serde, *, as_wide_as: str) -> Node:
        """Add a topic that steps write to by themselves, as wide as another repartition topic; return its source."""
        self.repartitions[name] = self.repartitions[as_wide_as]
        return self.add_source(name, value, internal=True)

    def _has_left_join(self, source: Node) -> bool:
        """Whether a left join follows, also behind further repartitions, as Kafka Streams looks for it."""
        found = _reachable(source)
        for node in found:
            if node in self._readers:
                found += [one for one in _reachable(self._readers[node]) if one not in found]
        return any(node.left for node in found)


def build(graph: Graph, application_id: str) -> Built:
    """Cut a graph into subtopologies.

    Args:
        graph: The steps.
        application_id: What the names of the application's own topics begin with.

    Raises:
        ValueError: A topic is read twice, two steps name one store, no topic can have the name that one of the
            application's own would get, or a store is used where keys have been changed and records may be with
            another key's task.
    """
    roots, repartitions = graph.roots, graph.repartitions
    topics = [INTERNAL * root.internal + root.topic for root in (*roots, *graph.global_tables.values())]
    if len(set(topics)) != len(topics):
        raise ValueError(f"read a topic once, and reuse its stream or table: {sorted(topics)}")
    _check_stores(roots)
    stores = {store for root in roots for store in _stores(root)}
    _check_global_tables(graph, stores)
    _check_names(application_id, sorted(stores | graph.global_tables.keys()), sorted(repartitions))
    built = []
    for index, connected in enumerate(_connected_sources(roots)):
        named = {internal_name(application_id, root.topic) if root.internal else root.topic: root for root in connected}
        names = sorted({store for root in connected for store in _stores(root)})
        suffixes = {
            store: size for root in connected for node in _reachable(root) for store, size in node.key_suffixes.items()
        }
        timestamped = frozenset(store for root in connected for node in _reachable(root) for store in node.timestamped)
        windows = {name: one for root in connected for node in _reachable(root) for name, one in node.windows.items()}
        built.append(Subtopology(index, tuple(sorted(named)), tuple(names), named, suffixes, timestamped, windows))
    written = {
        internal_name(application_id, name): tuple(
            sorted({topic for one in built if _writes(one, node) for topic in one.sources})
        )
        for name, node in repartitions.items()
    }
    tables = (
        Subtopology(GLOBAL, (root.topic,), (store,), {root.topic: root}, timestamped=frozenset({store}))
        for store, root in graph.global_tables.items()
    )
    return Built(tuple(built), written, tuple(tables))


def internal_name(application_id: str, name: str) -> str:
    """Return Kafka Streams' name of a repartition topic."""
    return f"{application_id}-{name}-repartition"


def send_old_values(table: Node) -> None:
    """Have the changes of a table carry the values before, and those of the tables that it is joined of as well."""
    table.sends_old = True
    for one in table.tables:
        if not one.sends_old:
            send_old_values(one)


def _bound(node: Node, context: Context, bound: dict[Node, Handler]) -> Handler:
    """Create a step with everything after it, once for all steps before it."""
    if node not in bound:
        following = [_bound(child, context, bound) for child in node.children]
        bound[node] = node.bind(context, _forwarding(node, following))
    return bound[node]


def _forwarding(node: Node, following: Sequence[Handler]) -> Handler:
    if node.is_table:
        steps = zip(node.children, following, strict=True)
        following = [step if child.takes_changes else _of_new_values(step) for child, step in steps]
    if (route := node.route) is not None:
        return lambda key, value: following[route(key, value)](key, value)
    if len(following) == 1:
        return following[0]

    def forward(key: bytes | None, value: Any) -> None:
        for step in following:
            step(key, value)

    return forward


def _of_new_values(step: Handler) -> Handler:
    return lambda key, change: step(key, change.new)


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
    for kept in [name for node in steps for name in node.private]:
        if named.count(kept) > 1:
            raise ValueError(f"two steps use the store {kept!r}: use one store per step, and `join` to read a table")
    for root in roots:
        for changing in [node for node in _reachable(root) if node.changes_keys]:
            stores = sorted(_stores(changing))
            if stores:
                raise ValueError(
                    f"keys are changed (map, flat_map, windows) before the store {stores[0]!r}, and records stay with "
                    "the task of their old key: put `repartition` between them, or keep the keys with map_values"
                )


def _check_global_tables(graph: Graph, stores: Collection[str]) -> None:
    for store, root in graph.global_tables.items():
        if store in stores:
            raise ValueError(
                f"the global table of {root.topic} and another step use the store {store!r}: name another store for "
                "one; a step reads the table's own by `context.global_store`"
            )
    if graph.global_tables and not graph.roots:
        raise ValueError("there are only global tables: read a topic with `stream` or `table`, too")


def _check_names(application_id: str, stores: Sequence[str], repartitions: Sequence[str]) -> None:
    """Refuse names of stores and of the application's topics that no topic or directory can have. Raises ValueError."""
    for store in stores:
        if not is_legal(store):  # "..", for example, is part of a legal topic name
            raise ValueError(f"invalid store name {store!r}: names have letters, digits, '.', '_' and '-'")
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
        shared = _shareable(root)
        together = [group for group in groups if any(shared & _shareable(one) for one in group)]
        if not together:
            groups.append([root])
            continue
        first = together[0]
        for other in together[1:]:
            first += other
            groups.remove(other)
        first.append(root)
    return groups


def _describe(node: Node, label: str, depth: int, shown: dict[Node, int], lines: list[str]) -> None:
    """Add a step and those after it; a step that several steps lead to is drawn once, and named by its line then."""
    if node in shown:
        lines.append(f"{'  ' * depth}-> {label} of line {shown[node]}")
        return
    lines.append("  " * depth + label)
    shown[node] = len(lines)
    for child in node.children:
        _describe(child, child.label, depth + 1, shown, lines)


def _shareable(root: Node) -> set[Node | str]:
    return {*_reachable(root), *_stores(root)}


def _writes(subtopology: Subtopology, sink: Node) -> bool:
    return any(sink in _reachable(root) for root in subtopology.roots.values())
