"""Decides which requests a rule matches, before they are processed.

Cheap properties are checked first: a rule about something else costs a request a fraction of a microsecond. A request's
rows are read once for all rules, and only if a rule needs them.

Pure.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from anabranch.faults.request_fields import (
    GROUP_KEY,
    NAMEABLE,
    PARTITION,
    TOPIC,
    TOPIC_ID,
    Names,
    Row,
    names_topics_by_id,
    rows_of,
    shape_of,
    values_of,
)
from anabranch.faults.rule import is_about_links
from anabranch.protocol.registry import BY_NAME

if TYPE_CHECKING:
    from anabranch.broker.authorization.peer import ConnectionState, Peer
    from anabranch.faults.rule import Rule
    from anabranch.protocol.codec import DecodedRequest

FETCH: Final = 1
UPDATES: Final = ("UpdateMetadata",)
"""The requests that send the cluster's metadata to brokers."""
BROKERS_ONLY: Final = frozenset({4, 5, 6, 7, 27, 56, 58, 67})
"""LeaderAndIsr, StopReplica, UpdateMetadata, ControlledShutdown, WriteTxnMarkers, AlterPartition, Envelope,
AllocateProducerIds: never sent by clients.
"""
BROKER_CLIENT: Final = re.compile(
    r"(?:broker|controller|(?:group|transaction)-coordinator|share-partitions)-(\d+)(?:-fetcher)?"
)
"""The client ids of brokers and controllers."""
BROKER_NAMES: Final = ("broker-", "controller-", "group-coordinator-", "transaction-coordinator-", "share-partitions-")
OPEN_END: Final = 32767
LINK: Final = re.compile(r"(\d+|\*):(\d+|\*)")
ANY: Final = "*"
SessionRows = Callable[[int], list[tuple[bytes | str, int]]]
"""Fetch session -> its partitions, by topic id or name."""


def version_span(versions: str) -> tuple[int, int]:
    """The first and last version of "3-9", "12-" or "7"; all versions for an empty text. Raises ValueError."""
    if not versions:
        return 0, OPEN_END
    first, dash, last = versions.partition("-")
    return int(first), int(last) if last else OPEN_END if dash else int(first)


def ends_of(link: str) -> tuple[str, str]:
    """Source and target of a link; `*` for any broker. Raises ValueError."""
    found = LINK.fullmatch(link)
    if found is None:
        raise ValueError(f"a link is written as 1:2, from broker 1 to broker 2, or *:2, not {link!r}")
    return found[1], found[2]


def matches_link(source: int | None, target: int | None, link: tuple[str, str]) -> bool:
    """Whether traffic between two brokers uses a link; a broker's requests to itself use none."""
    if source is None or target is None or source == target:
        return False
    return link[0] in (ANY, str(source)) and link[1] in (ANY, str(target))


@dataclass(frozen=True, slots=True)
class NodeContext:
    """The knowledge of a node that resolves ids in requests."""

    node_id: int
    topic_name: Callable[[bytes], str | None]
    session_rows: SessionRows


class RequestView:
    """One request as rules see it."""

    __slots__ = ("_between_brokers", "_rows", "_values", "at", "number", "peer", "request")

    def __init__(self, request: DecodedRequest, peer: Peer, number: int, at: NodeContext) -> None:
        self.request = request
        self.peer = peer
        self.number = number
        """The request's number on its connection; 0 if not counted."""
        self.at = at
        """The receiving node."""
        self._rows: list[Row] | None = None
        self._values: dict[str, set[Any] | None] | None = None
        self._between_brokers: bool | None = None

    def of(self, request: DecodedRequest) -> RequestView:
        """Return a view of the remaining part of the request."""
        return RequestView(request, self.peer, self.number, self.at)

    def look_up_topics(self, message: Any) -> None:
        """Look up the topics that a request or response names by id alone, for a context that remembers names."""
        if names_topics_by_id(type(message), self.request.version):
            for topic_id in values_of(message, self.request.version, TOPIC_ID) or ():
                self.at.topic_name(topic_id)

    @property
    def names(self) -> Names:
        """See Names."""
        return Names(self.at.topic_name, getattr(self.request.body, "key_type", GROUP_KEY))

    @property
    def base(self) -> Row:
        """The properties of the request as a whole."""
        body, names = self.request.body, self.names
        return names.identity(body, shape_of(type(body)), self.request.version, {})

    def values(self, kind: str) -> set[Any] | None:
        """Return all values of a kind in the request; None if only the rows or the response contain them."""
        if self._values is None:
            self._values = {}
        if kind not in self._values:
            body, version = self.request.body, self.request.version
            found = values_of(body, version, kind)
            if kind == TOPIC and (ids := values_of(body, version, TOPIC_ID)):
                found = (found or set()) | {self.at.topic_name(one) for one in ids}
            if kind in (TOPIC, PARTITION) and self.request.api.key == FETCH and body.session_epoch > 0:
                found = self._with_session(found or set(), kind)
            self._values[kind] = found
        return self._values[kind]

    def _with_session(self, found: set[Any], kind: str) -> set[Any]:
        places = self._in_session()
        if kind == PARTITION:
            return found.union(partition for _, partition in places)
        topics = {topic for topic, _ in places}
        return found.union(self.at.topic_name(one) if isinstance(one, bytes) else one for one in topics)

    @property
    def rows(self) -> list[Row]:
        """All rows of the request; for a Fetch, all partitions of its session."""
        if self._rows is None:
            request, names = self.request, self.names
            self._rows = rows_of(names, request.body, request.version)
            if request.api.key == FETCH and request.body.session_epoch > 0:
                self._rows = [row for row in self._rows if row] + self._session_rows(names)
        return self._rows

    def _session_rows(self, names: Names) -> list[Row]:
        named = {(row.get("topic_id") or row.get("topic"), row.get("partition")) for row in self._rows or ()}
        found = []
        for topic, partition in self._in_session():
            if (topic, partition) not in named:
                kind = "topic_id" if isinstance(topic, bytes) else "topic"
                found.append(names.spelled_out({kind: topic, "partition": partition}))
        return found

    def _in_session(self) -> list[tuple[bytes | str, int]]:
        """The partitions of a Fetch's session, without those that the request removes from it."""
        body = self.request.body
        removed = {
            (one.topic or one.topic_id, partition) for one in body.forgotten_topics_data for partition in one.partitions
        }
        return [place for place in self.at.session_rows(body.session_id) if place not in removed]

    @property
    def between_brokers(self) -> bool:
        """Whether a broker or controller sent the request."""
        if self._between_brokers is None:
            self._between_brokers = self._is_sent_by_broker()
        return self._between_brokers

    @property
    def asker(self) -> int | None:
        """The id of the broker that sent the request, if known."""
        found = BROKER_CLIENT.fullmatch(self.request.client_id or "")
        return None if found is None else int(found[1])

    def _is_sent_by_broker(self) -> bool:
        request = self.request
        if request.api.key in BROKERS_ONLY or getattr(request.body, "replica_id", -1) >= 0:
            return True
        state = getattr(request.body, "replica_state", None)
        if state is not None and state.replica_id >= 0:
            return True
        client_id = request.client_id
        if client_id is None or not client_id.startswith(BROKER_NAMES):
            return False
        return BROKER_CLIENT.fullmatch(client_id) is not None


class Matcher:
    """The conditions of a rule on requests."""

    def __init__(self, rule: Rule) -> None:
        self._keys = frozenset(BY_NAME[name].key for name in rule.api or (UPDATES if rule.stale_metadata else ()))
        self._first, self._last = version_span(rule.versions)
        self.between_brokers = is_about_links(rule)
        self._links = tuple(map(ends_of, rule.link))
        self._requests_max = rule.first
        self._left_out: WeakSet[ConnectionState] = WeakSet()
        self._client_id = re.compile(fnmatch.translate(rule.client_id)) if rule.client_id else None
        self._peer = tuple(
            (name, expected)
            for name, expected in (("listener", rule.listener), ("host", rule.address), ("principal", rule.principal))
            if expected
        )
        self.named = tuple((kind, frozenset(getattr(rule, kind))) for kind in NAMEABLE if getattr(rule, kind))
        """The conditions on rows: kind, and its values."""

    def leave_out(self, connections: Iterable[ConnectionState]) -> None:
        """Leave out connections that were open before the rule: nobody has counted their requests."""
        self._left_out.update(connections)

    @property
    def names_rows(self) -> bool:
        """Whether the rule is about some rows of a request."""
        return bool(self.named)

    @property
    def names_peers(self) -> bool:
        """Whether the rule is about some peers only."""
        return bool(self._peer)

    def is_about(self, key: int, version: int, client_id: str | None, peer: Peer) -> bool:
        """Whether the rule may match requests of this kind."""
        if self._peer and any(getattr(peer, name) != expected for name, expected in self._peer):
            return False
        if self._keys and key not in self._keys:
            return False
        if not self._first <= version <= self._last:
            return False
        return self._client_id is None or self._client_id.match(client_id or "") is not None

    def fits(self, view: RequestView) -> bool:
        """Whether the rule matches a request of a kind that passed `is_about`, or some of its rows."""
        if self._requests_max and (not 0 < view.number <= self._requests_max or view.peer.connection in self._left_out):
            return False
        if view.between_brokers != self.between_brokers:
            return False
        return self.uses_link(view) and (not self.named or any(map(self.matches, view.rows)))

    def uses_link(self, view: RequestView) -> bool:
        """Whether the rule's link, if it has one, carries the request or its response."""
        return not self._links or self._is_way_there(view) or self.is_way_back(view)

    def _is_way_there(self, view: RequestView) -> bool:
        return any(matches_link(view.asker, view.at.node_id, link) for link in self._links)

    def is_way_back(self, view: RequestView) -> bool:
        """Whether the rule's link carries the response but not the request."""
        if not self._links or self._is_way_there(view):
            return False
        return any(matches_link(view.at.node_id, view.asker, link) for link in self._links)

    def matches(self, row: Row) -> bool:
        """Whether a row may match, as far as it is known."""
        return all(kind not in row or row[kind] in expected for kind, expected in self.named)

    def surely_matches(self, row: Row) -> bool:
        """Whether a row has all kinds that the rule names, and matches."""
        return all(kind in row and row[kind] in expected for kind, expected in self.named)

    def rows(self, view: RequestView) -> list[Row]:
        """The matching rows."""
        return [row for row in view.rows if self.matches(row)]


class Index:
    """An index of the rules about one kind of request by their values, to skip rules about other values."""

    def __init__(self, matchers: Sequence[Matcher]) -> None:
        self._everyone = range(len(matchers))
        named: dict[str, dict[Any, set[int]]] = {}
        for position, matcher in enumerate(matchers):
            for kind, expected in matcher.named:
                for one in expected:
                    named.setdefault(kind, {}).setdefault(one, set()).add(position)
        rarest_first = sorted(named.items(), key=lambda one: -len(one[1]))  # the most selective for most requests
        self._named = tuple((kind, table, self._not_in(table)) for kind, table in rarest_first)

    def _not_in(self, table: Mapping[Any, set[int]]) -> frozenset[int]:
        return frozenset(self._everyone).difference(*table.values())

    def candidates(self, view: RequestView) -> Sequence[int]:
        """The positions of the rules that may match the request, in order."""
        found: AbstractSet[int] | None = None
        for kind, table, others in self._named:
            values = view.values(kind)
            if values is None:
                continue  # decided by its rows or its response
            able: AbstractSet[int] = others
            for one in values if len(values) < len(table) else table.keys() & values:
                if one in table:
                    able = able | table[one]
            found = able if found is None else found & able
            if not found:
                return ()
        return self._everyone if found is None else sorted(found)
