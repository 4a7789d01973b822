"""The journal of a cluster: the last exchanges of clients, and of brokers among themselves.

The two kinds have separate limits.

    journal = Journal(1000, cluster.node_ids)
    cluster.on_node(journal.watch)
    ...
    assert journal.count(api="OffsetCommit", group="billing") == 1
"""

from __future__ import annotations

import asyncio
import dataclasses
import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack

from anabranch.faults.matching import NodeContext, RequestView
from anabranch.faults.trigger import Trigger
from anabranch.journal.entry import JournalEntry
from anabranch.journal.explanation import explain
from anabranch.journal.frames import add_response, frames_of
from anabranch.journal.query import Query
from anabranch.journal.recorder import RecordingDispatcher

if TYPE_CHECKING:
    from anabranch.broker.authorization.peer import Peer
    from anabranch.broker.node.app import Node
    from anabranch.faults.active_rule import ActiveRule, Hit
    from anabranch.faults.faults import Served
    from anabranch.journal.explanation import ClusterEvent
    from anabranch.journal.query import JournalFilter
    from anabranch.protocol.codec import DecodedRequest

BEGUN: Final = "begun"
ENDED: Final = "ended"
OPEN: Final = "open"
Key = tuple[int, str, int, int]
"""Node, host, port, correlation id: unique among open requests."""


class Journal:
    """Keeps the last `size` exchanges of clients, and as many between brokers.

    Args:
        size: The number of exchanges.
        node_ids: The brokers.
        frames: Keep the bytes, too, for captures, except those of requests that may hold secrets.
    """

    def __init__(self, size: int, node_ids: Collection[int], *, frames: bool = False) -> None:
        self._node_ids = node_ids
        self._size = size
        self.keeps_frames = frames
        self._of_clients: deque[JournalEntry] = deque(maxlen=size)
        self._of_brokers: deque[JournalEntry] = deque(maxlen=size)
        self._under_way: dict[Key, JournalEntry] = {}
        self._number = 0
        self._changed: dict[str, asyncio.Future[None]] = {}
        """BEGUN or ENDED -> what waits for the next such change of an exchange."""
        self._events: Callable[[], Sequence[ClusterEvent]] = lambda: ()

    def knows(self, events: Callable[[], Sequence[ClusterEvent]]) -> None:
        """Set the source of cluster events for explanations."""
        self._events = events

    def explain(self, exchange: JournalEntry | int, events: Sequence[ClusterEvent] | None = None) -> list[str]:
        """Explain an exchange's outcome in sentences. KeyError if no exchange of this number is kept.

        `events` are used in place of the journal's own source of events.

        Example: "... was refused with NOT_LEADER_OR_FOLLOWER for orders-3: its leader is broker 2 in epoch 5, since 11
        ms before."
        """
        kept = list(self)
        if isinstance(exchange, int):
            exchange = {one.number: one for one in kept}[exchange]
        return explain(exchange, self._events() if events is None else events, kept)

    @property
    def newest(self) -> int:
        """The number of the newest exchange; 0 if there is none."""
        return self._number

    def watch(self, node: Node) -> None:
        """Record a node's requests from now on."""
        services = node.services
        at = NodeContext(services.settings.node_id, services.metadata.topic_name, lambda session: [])
        self.follow(node.server, at)

    def follow(self, server: Served, at: NodeContext) -> None:
        """Record a server's requests from now on."""
        at = dataclasses.replace(at, topic_name=remembering(at.topic_name))
        server.dispatcher = RecordingDispatcher(server.dispatcher, self, at)

    def entries(self, **where: Unpack[JournalFilter]) -> list[JournalEntry]:
        """The kept exchanges that match, the oldest first.

        Args:
            **where: api="Fetch", topic="orders", partition=1, group=, client_id=, error=, rule=, outcome=, after=,
                limit=: see `WORDS`. between_brokers=True for requests between brokers.

        Raises:
            InvalidRule: No exchange can match; the message suggests a correction.
        """
        return self.find(Query.of(where, self._node_ids))

    def find(self, query: Query) -> list[JournalEntry]:
        """The exchanges that match a query."""
        found = [one for one in self if query.matches(one)]
        return found[-query.limit :] if query.limit else found

    def __iter__(self) -> Iterator[JournalEntry]:
        return heapq.merge(self._of_clients, self._of_brokers, key=lambda one: one.number)

    def count(self, **where: Unpack[JournalFilter]) -> int:
        """Count the exchanges that match; see `entries`."""
        return len(self.entries(**where))

    async def wait_for(self, n: int = 1, timeout_s: float = 30.0, **where: Unpack[JournalFilter]) -> list[JournalEntry]:
        """Wait until `n` exchanges match. TimeoutError reports the number so far."""
        query, loop = Query.of(where, self._node_ids), asyncio.get_running_loop()
        change = BEGUN if query.outcome == OPEN else ENDED
        try:
            async with asyncio.timeout(timeout_s):
                while len(found := self.find(query)) < n:
                    await asyncio.shield(self._changed.setdefault(change, loop.create_future()))
        except TimeoutError:
            limit = f"; the journal keeps the last {self._size}" if n > self._size else ""
            raise TimeoutError(f"after {timeout_s:g} s {len(self.find(query))} of {n} such exchanges{limit}") from None
        return found

    def clear(self) -> None:
        """Clear the journal."""
        self._of_clients.clear()
        self._of_brokers.clear()

    def on_hit(self, armed: ActiveRule, node_id: int, what: Hit) -> None:
        """Record a rule's hit, if it is a request."""
        if isinstance(what, Trigger):
            return
        entry = self._under_way.get(_key(node_id, what.peer, what.request))
        if entry is not None:
            entry.hit_by(armed.rule)
            self._notify(BEGUN)

    # --- called by recorders

    def begin(self, request: DecodedRequest, peer: Peer, at: NodeContext) -> JournalEntry:
        """Open an exchange."""
        self._number += 1
        frames = frames_of(request) if self.keeps_frames else None
        entry = JournalEntry(self._number, asyncio.get_running_loop().time(), RequestView(request, peer, 0, at))
        entry.frames = frames
        kept = self._of_brokers if entry.view.between_brokers else self._of_clients
        kept.append(entry)
        self._under_way[_key(at.node_id, peer, request)] = entry
        self._notify(BEGUN)
        return entry

    def end(self, entry: JournalEntry, outcome: str, response: Any = None) -> None:
        """Complete an exchange."""
        view = entry.view
        self._under_way.pop(_key(view.at.node_id, view.peer, view.request), None)
        if entry.frames is not None and response is not None:
            entry.frames = add_response(entry.frames, view.request, response)
        entry.end(asyncio.get_running_loop().time(), outcome, response)
        self._notify(ENDED)

    def _notify(self, change: str) -> None:
        if (changed := self._changed.pop(change, None)) is not None:
            changed.set_result(None)


def remembering(topic_name: Callable[[bytes], str | None]) -> Callable[[bytes], str | None]:
    """Have a lookup of topic names by id keep the names that it has found, for exchanges about deleted topics."""
    known: dict[bytes, str] = {}

    def lookup(topic_id: bytes) -> str | None:
        name = topic_name(topic_id)
        if name is None:
            return known.get(topic_id)
        known[topic_id] = name
        return name

    return lookup


def _key(node_id: int, peer: Peer, request: DecodedRequest) -> Key:
    return node_id, peer.host, peer.port, request.correlation_id
