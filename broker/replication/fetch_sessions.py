"""Incremental fetch sessions (KIP-227): the state of a fetcher's partitions between its requests, and their eviction.

A session holds a fetcher's partitions with what was last sent of each. A request names only changes, and a response
contains only news. A partition that was read, and has nothing more than was sent, is *idle*: the session listens to it,
and reads it again only after it has changed or was named. The cost of a request thus depends on the changes, not on the
size of the session. Each request has the next epoch. A lost, repeated or overtaken request has another one; it is
refused, and the fetcher starts over.

    id 0, epoch 0: ask for a session    0, -1: none wanted    n, 0: replace session n    n, -1: close it
    n, k > 0: an incremental request; k counts 1, 2, ... 2^31 - 1, 1, ...

Invariants: a partition is either idle and listened to, or in its session's `changed`. If the last row of a partition
was an error, the next response contains the partition in any case. Source: Kafka's `FetchSession` and
`FetchSessionCache`. Pure: time, order of use and random numbers come from callers.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from anabranch.broker.replication.follower import LastSeen
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.broker.replication.follower import Follower
    from anabranch.broker.replication.partition import Partition
    from anabranch.protocol.apis.fetch import (
        FetchableTopicResponse,
        FetchPartition,
        FetchRequest,
        FetchResponse,
        PartitionData,
    )

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
NO_EPOCH: Final = -1
EPOCH_MAX: Final = 2**31 - 1
EVICTION_MS: Final = 120_000

Key = tuple[bytes | str, int]
"""(topic id or name, partition index), as the fetcher identifies a partition."""
SessionOwner = tuple[int, int, bool, bool, str, object, int]
"""What responses for all partitions depend on: (follower id or -1, its broker epoch, whether that epoch is the
registered one, whether it reads committed only, the consumer's rack, the brokers and their racks, the number of changes
of access control entries).
"""
Rank = tuple[bool, int, int]
"""(is a follower's, partitions, id): the least is evicted first."""


def next_epoch(epoch: int) -> int:
    """Return the epoch of the next request."""
    return 1 if epoch == EPOCH_MAX else epoch + 1


class SessionPartition:
    """One partition of a session: what is requested, and what was last sent."""

    __slots__ = (
        "follower", "high_watermark", "key", "leader_epoch", "log_start_offset", "partition", "requested", "session",
        "turn",
    )  # fmt: skip

    def __init__(self, session: FetchSession, key: Key, requested: FetchPartition) -> None:
        self.session = session
        self.key = key
        self.requested = requested
        self.turn = session.next_epoch_batch()
        """Its place in the order in which partitions are served."""
        self.high_watermark = -1
        self.log_start_offset = -1
        self.partition: Partition | None = None
        """The partition while it is idle under `leader_epoch`; None while it has to be read."""
        self.leader_epoch = -1
        self.follower: Follower | None = None
        """The session's follower, as the partition knows it; while idle it has the whole log."""

    def update(self, requested: FetchPartition) -> None:
        """Apply a changed request for the partition."""
        if requested.current_leader_epoch != self.requested.current_leader_epoch:
            # The last response may have arrived too late to be used under the epoch for which it was requested.
            self.high_watermark = -1
        self.requested = requested
        self.wake()

    def mark_idle(self, partition: Partition, follower: Follower | None) -> None:
        """Mark the partition idle and listen: another read would find nothing until it changes."""
        self.partition, self.leader_epoch, self.follower = partition, partition.leader_epoch, follower
        partition.listeners[self] = None
        self.session.changed.pop(self.key, None)
        if follower is not None:
            follower.mark_idle(self.session.presence)

    def on_change(self) -> None:
        """Wake up after a change of the partition; the listener is removed already."""
        session, partition = self.session, self.partition
        assert partition is not None, "only an idle partition has a listener"
        self._leave()
        session.changed[self.key] = self
        if session.waiting is not None:
            session.waiting.on_change(self, partition)

    def wake(self) -> None:
        """Read the partition again, whether it has changed or not."""
        self.leave()
        self.session.changed[self.key] = self

    def leave(self) -> None:
        """Stop listening."""
        if self.partition is not None:
            del self.partition.listeners[self]
            self._leave()

    def _leave(self) -> None:
        self.partition = None
        if self.follower is not None:
            self.follower.stir()
            self.follower = None

    def has_changed(self, row: PartitionData) -> bool:
        """Return whether an incremental response has to contain this row."""
        return (
            len(row.records or b"") > 0
            or row.error_code != ErrorCode.NONE
            or row.high_watermark != self.high_watermark
            or row.log_start_offset != self.log_start_offset
            or row.diverging_epoch.epoch >= 0
            or row.preferred_read_replica >= 0
        )

    def on_sent(self, row: PartitionData) -> None:
        """Record a sent row. Fetchers ignore the high watermark of a row with an error or a divergence."""
        used = not row.error_code and row.diverging_epoch.epoch < 0
        self.high_watermark = row.high_watermark if used else -1
        self.log_start_offset = row.log_start_offset


class SessionWait(Protocol):
    """A waiting request of a session."""

    def on_change(self, entry: SessionPartition, partition: Partition) -> None:
        """Watch an idle partition that has changed."""

    def release(self) -> None:
        """Stop waiting: the session has continued with another request, or has ended."""


class FetchSession:
    """One fetcher's partitions; `changed` are those to read for the next response."""

    __slots__ = (
        "by_id", "changed", "created_ms", "epoch", "id", "is_follower", "owner", "partitions", "presence", "rank",
        "ranked_old", "turns", "used_ms", "waiting",
    )  # fmt: skip

    def __init__(self, session_id: int, *, is_follower: bool, by_id: bool, now_ms: float) -> None:
        self.id = session_id
        self.is_follower = is_follower
        self.by_id = by_id
        self.created_ms = self.used_ms = now_ms
        self.epoch = next_epoch(FIRST_EPOCH)
        """The epoch of the next request."""
        self.partitions: dict[Key, SessionPartition] = {}
        self.changed: dict[Key, SessionPartition] = {}
        self.presence = LastSeen()
        """The time of the follower's last request."""
        self.owner: SessionOwner | None = None
        self.waiting: SessionWait | None = None
        self.turns = 0
        self.rank: Rank = (is_follower, -1, session_id)
        self.ranked_old = False

    def next_epoch_batch(self) -> int:
        """Return the place behind all partitions of the session."""
        self.turns += 1
        return self.turns

    def fill(self, request: FetchRequest, answer: list[FetchableTopicResponse]) -> None:
        """Store a full request and its response, row by row."""
        for topic, answered in zip(request.topics, answer, strict=True):
            name: bytes | str = topic.topic_id if self.by_id else topic.topic
            for requested, row in zip(topic.partitions, answered.partitions, strict=True):
                key = name, requested.partition
                entry = self.partitions[key] = self.changed[key] = SessionPartition(self, key, requested)
                entry.on_sent(row)

    def update(self, request: FetchRequest) -> None:
        """Apply the changes of an incremental request."""
        partitions = self.partitions
        for topic in request.topics:
            name: bytes | str = topic.topic_id if self.by_id else topic.topic
            for requested in topic.partitions:
                key = name, requested.partition
                entry = partitions.get(key)
                if entry is None:
                    partitions[key] = self.changed[key] = SessionPartition(self, key, requested)
                else:
                    entry.update(requested)
        for forgotten in request.forgotten_topics_data:
            name = forgotten.topic_id if self.by_id else forgotten.topic
            for index in forgotten.partitions:
                entry = partitions.pop((name, index), None)
                if entry is not None:
                    entry.leave()
                    self.changed.pop(entry.key, None)

    def set_owner(self, owner: SessionOwner) -> None:
        """Set what responses depend on; if it has changed, all partitions have to be read again."""
        if owner != self.owner:
            self.owner = owner
            for entry in self.partitions.values():
                entry.wake()

    def partitions_in_order(self) -> list[SessionPartition]:
        """Return the partitions to read, in the order in which they are served."""
        return sorted(self.changed.values(), key=_turn)

    def on_sent(self, rows: list[tuple[SessionPartition, PartitionData]]) -> None:
        """Record sent rows. Partitions with records move to the end of the order."""
        for entry, row in rows:
            entry.on_sent(row)
            if row.records:
                entry.turn = self.next_epoch_batch()

    def take_back(self, responses: list[FetchableTopicResponse]) -> None:
        """Read these rows again for the next response, and send them even if they have not changed until then."""
        for topic in responses:
            name: bytes | str = topic.topic_id if self.by_id else topic.topic
            for row in topic.partitions:
                entry = self.partitions.get((name, row.partition_index))
                if entry is not None:
                    entry.high_watermark = -1
                    entry.wake()

    def pass_over(self) -> None:
        """Release a waiting request that the next one overtakes, or that the session's end makes void."""
        if self.waiting is not None:
            waiting, self.waiting = self.waiting, None
            waiting.release()

    def end(self) -> None:
        """End the session."""
        self.epoch = NO_EPOCH
        for entry in self.partitions.values():
            entry.leave()
        self.pass_over()


def _turn(entry: SessionPartition) -> int:
    return entry.turn


class FetchSessionCache:
    """All sessions of this broker, at most `slots`.

    In a full cache a new session replaces one that was idle for two minutes. Otherwise a follower's replaces any
    consumer's, and any session an older, smaller one of its kind. Otherwise no session is created.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: dict[int, FetchSession] = {}
        """The least recently used is first."""
        self._for_followers: list[Rank] = []
        """Heap of the sessions that a follower's may replace; entries that differ from a session's rank are void."""
        self._for_all: list[Rank] = []

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self,
        request: FetchRequest,
        answer: list[FetchableTopicResponse],
        *,
        is_follower: bool,
        by_id: bool,
        now_ms: float,
        draw: Callable[[int, int], int],
    ) -> int:
        """Store a full request; return the new session's id, or 0 if the cache is full. `draw(a, b)` works as
        `randint`.
        """
        size = sum(len(topic.partitions) for topic in request.topics)
        if len(self._sessions) >= self._slots and not self._make_room((is_follower, size, 0), now_ms):
            return NO_SESSION
        session_id = draw(1, EPOCH_MAX - 1)
        while session_id in self._sessions:
            session_id = draw(1, EPOCH_MAX - 1)
        session = FetchSession(session_id, is_follower=is_follower, by_id=by_id, now_ms=now_ms)
        session.fill(request, answer)
        self._touch(session, now_ms)
        return session_id

    def partitions_of(self, session_id: int) -> list[Key]:
        """Return the partitions of a session; none if the id is unknown."""
        session = self._sessions.get(session_id)
        return [] if session is None else list(session.partitions)

    def take_back(self, request: FetchRequest, response: FetchResponse) -> int:
        """Note that the rows of a response are not sent, because of a quota; return the session of the empty response.

        A client that has asked for a session asks again after an empty response (KIP-219): its session is closed.
        """
        if request.session_epoch == FIRST_EPOCH:
            self.close(response.session_id)
            return NO_SESSION
        session = self._sessions.get(response.session_id)
        if session is not None:
            session.take_back(response.responses)
        return response.session_id

    def close(self, session_id: int) -> None:
        """Close a session, if it exists."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.end()

    def admit(self, request: FetchRequest, *, by_id: bool, now_ms: float) -> FetchSession | None:
        """Apply an incremental request to its session; return it, or None if it is empty and thus closed."""
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session {request.session_id}")
        if session.epoch != request.session_epoch:
            raise KafkaError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {session.id} is at epoch {session.epoch}, not {request.session_epoch}",
            )
        if session.by_id != by_id:
            raise KafkaError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
                f"fetch session {session.id} uses topic names or topic ids, not both",
            )
        session.pass_over()
        session.update(request)
        if not session.partitions:
            self.close(session.id)
            return None
        session.epoch = next_epoch(session.epoch)
        self._touch(session, now_ms)
        return session

    def _touch(self, session: FetchSession, now_ms: float) -> None:
        sessions = self._sessions
        sessions.pop(session.id, None)
        sessions[session.id] = session
        session.used_ms = now_ms
        is_old = now_ms - session.created_ms > EVICTION_MS
        size = len(session.partitions)
        if size == session.rank[1] and is_old == session.ranked_old:
            return
        session.rank, session.ranked_old = (session.is_follower, size, session.id), is_old
        if is_old or not session.is_follower:
            self._push(self._for_followers, session.rank)
        if is_old:
            self._push(self._for_all, session.rank)

    def _push(self, heap: list[Rank], rank: Rank) -> None:
        heapq.heappush(heap, rank)
        if len(heap) > 64 and len(heap) > 4 * len(self._sessions):
            heap[:] = sorted({one for one in heap if self._is_present(one)})

    def _is_present(self, rank: Rank) -> bool:
        session = self._sessions.get(rank[2])
        return session is not None and session.rank == rank

    def _make_room(self, newcomer: Rank, now_ms: float) -> bool:
        """Evict the least valuable session, if it is worth less than the newcomer."""
        idle = next(iter(self._sessions.values()), None)
        if idle is None:
            return False
        if now_ms - idle.used_ms > EVICTION_MS:
            self.close(idle.id)
            return True
        heap = self._for_followers if newcomer[0] else self._for_all
        while heap and not self._is_present(heap[0]):
            heapq.heappop(heap)
        if not heap or newcomer < heap[0]:
            return False
        self.close(heap[0][2])
        return True
