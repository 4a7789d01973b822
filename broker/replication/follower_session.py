"""The follower's side of a fetch session (KIP-227): requests name only changed partitions.

The first request names all partitions and requests a session. Later requests name partitions with appended records, new
ones and removed ones. The session listens to its partitions, so the cost of a request depends on the changes. Without a
session from the leader every request is a full one. After a lost connection or a refusal the leader's state is unknown;
then a full request replaces the old session. Source: Kafka's `FetchSessionHandler`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from anabranch.broker.replication.fetch_sessions import FIRST_EPOCH, NO_EPOCH, NO_SESSION, next_epoch
from anabranch.broker.replication.partition import Partition
from anabranch.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.values import value
from anabranch.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from anabranch.broker.config.broker_settings import BrokerSettings
    from anabranch.protocol.apis.fetch import FetchResponse

REFUSALS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
Position = tuple[bytes | str, int]
"""(topic id or name, index), as the response identifies the partition."""


@dataclass(slots=True, eq=False)
class Following:
    """The state of fetching one partition."""

    partition: Partition
    leader_epoch: int
    resume_ms: float = 0.0
    failures: int = 0
    fenced: bool = False
    session: FollowerSession | None = None
    """The session that contains the partition."""

    def on_change(self) -> None:
        """Mark that the next request may differ for this partition."""
        if self.session is not None:
            self.session.reconsider(self)


@value
class SessionEntry:
    """The requested position of a partition; a response that no longer fits it is ignored."""

    following: Following
    fetch_offset: int
    last_epoch: int = -1
    log_start_offset: int = -1

    def holds(self, following: Following) -> bool:
        """Return whether the same would be requested now."""
        log = following.partition.log
        return (
            self.following is following
            and self.fetch_offset == log.log_end_offset
            and self.last_epoch == log.epochs.latest_epoch
            and self.log_start_offset == log.log_start_offset
        )


class FollowerSession:
    """The leader's view of this follower's requests; `requested` holds it by the names that responses use."""

    def __init__(self, *, with_session: bool = True) -> None:
        """`with_session`: whether to request a session; otherwise each request is a full one."""
        self._first_epoch = FIRST_EPOCH if with_session else NO_EPOCH
        self.id = NO_SESSION
        self.epoch = self._first_epoch
        """The epoch of the next request."""
        self.requested: dict[Position, SessionEntry] = {}
        self.without_id = 0
        """The number of partitions whose topic has no id from the controller."""
        self._by_id = True
        self._following: dict[Following, None] = {}
        self._changed: dict[Following, None] = {}
        self._gone: dict[Following, None] = {}

    def __len__(self) -> int:
        return len(self._following)

    def add(self, one: Following) -> None:
        """Fetch this partition, too, from the next request on."""
        if one.session is not self:
            one.session = self
            self.without_id += one.partition.topic_id == ZERO_UUID
            self._following[one] = self._changed[one] = None

    def remove(self, one: Following) -> None:
        """Stop fetching this partition."""
        if one.session is self:
            one.session = None
            self.without_id -= one.partition.topic_id == ZERO_UUID
            del self._following[one]
            self._changed.pop(one, None)
            self._gone[one] = None
            one.partition.listeners.pop(one, None)

    def reconsider(self, one: Following) -> None:
        """Check for the next request whether this partition's row has changed."""
        self._changed[one] = None

    def restart(self) -> None:
        """Send a full request next, which replaces the leader's session."""
        self.epoch = self._first_epoch

    def request(self, settings: BrokerSettings, *, by_id: bool, broker_epoch: int, max_wait_ms: int) -> FetchRequest:
        """Return the next request; `requested` then has an entry for every requested partition."""
        if by_id != self._by_id:
            self.restart()
        self._by_id = by_id
        if self.epoch == self._first_epoch:
            self.requested = {}
            self._changed = dict(self._following)
        missing: dict[Position, None] = {}
        for one in self._gone:
            position = self._position(one.partition)
            known = self.requested.get(position)
            if known is not None and known.following is one:
                del self.requested[position]
                missing[position] = None
        changed = []
        for one in self._changed:
            position = self._position(one.partition)
            missing.pop(position, None)
            known = self.requested.get(position)
            if known is None or not known.holds(one):
                log = one.partition.log
                known = SessionEntry(one, log.log_end_offset, log.epochs.latest_epoch, log.log_start_offset)
                self.requested[position] = known
                changed.append(known)
            one.partition.listeners[one] = None
        self._gone.clear()
        self._changed.clear()
        return FetchRequest(
            replica_id=settings.node_id,
            replica_state=ReplicaState(replica_id=settings.node_id, replica_epoch=broker_epoch),
            max_wait_ms=max_wait_ms,
            min_bytes=settings.replica_fetch_min_bytes,
            max_bytes=settings.replica_fetch_response_max_bytes,
            session_id=self.id,
            session_epoch=self.epoch,
            topics=to_rows(changed, settings.replica_fetch_max_bytes),
            forgotten_topics_data=forgotten_topics(list(missing)),
        )

    def _position(self, partition: Partition) -> Position:
        return (partition.topic_id if self._by_id else partition.topic, partition.index)

    def handle_response(self, response: FetchResponse) -> bool:
        """Process a response; return whether it can be used. Raises KafkaError if a new request would not help."""
        code = ErrorCode(response.error_code)
        if code is not ErrorCode.NONE:
            if code not in REFUSALS or self.epoch == self._first_epoch:
                self.restart()
                raise KafkaError(code, "the whole fetch was refused")
            if code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.id = NO_SESSION
            self.restart()
            return False
        self.id = response.session_id
        self.epoch = self._first_epoch if self.id == NO_SESSION else next_epoch(self.epoch)
        return True


def to_rows(requested: list[SessionEntry], partition_max_bytes: int) -> list[FetchTopic]:
    """Return the partitions to fetch as a request lists them."""
    topics: dict[str, FetchTopic] = {}
    for one in requested:
        partition = one.following.partition
        topic = topics.get(partition.topic)
        if topic is None:
            topic = FetchTopic(topic=partition.topic, topic_id=partition.topic_id, partitions=[])
            topics[partition.topic] = topic
        topic.partitions.append(
            FetchPartition(
                partition=partition.index,
                current_leader_epoch=one.following.leader_epoch,
                fetch_offset=one.fetch_offset,
                last_fetched_epoch=one.last_epoch,
                log_start_offset=one.log_start_offset,
                partition_max_bytes=partition_max_bytes,
            )
        )
    return list(topics.values())


def forgotten_topics(positions: list[Position]) -> list[ForgottenTopic]:
    """Return the removed partitions as a request lists them."""
    if not positions:
        return []
    topics: dict[bytes | str, ForgottenTopic] = {}
    for name, index in positions:
        if name not in topics:
            topics[name] = ForgottenTopic(partitions=[])
            if isinstance(name, bytes):
                topics[name].topic_id = name
            else:
                topics[name].topic = name
        topics[name].partitions.append(index)
    return list(topics.values())
