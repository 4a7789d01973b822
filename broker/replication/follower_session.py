"""A follower's side of a fetch session (KIP-227): name only the partitions about which the question has changed.

The first request names all partitions and asks for a session; from then on the leader remembers, and each request
names what was appended to, what is new and what is no longer wanted. Which those are is known, not looked for: the
session listens to its partitions, so a request costs what has changed, however many are followed. When the leader does
not give a session, every request is a full one. Whatever puts in doubt what the leader remembers (a lost connection, a
refusal) ends in a new full request, which replaces the old session. Source: Kafka's `FetchSessionHandler`.
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
"""(topic id or name, index), as the answer will name it."""


@dataclass(slots=True, eq=False)
class Following:
    """The state of fetching one partition."""

    partition: Partition
    leader_epoch: int
    resume_ms: float = 0.0
    failures: int = 0
    fenced: bool = False
    session: FollowerSession | None = None
    """Where it is asked for."""

    def stirred(self) -> None:
        """What has to be asked is another thing now, perhaps."""
        if self.session is not None:
            self.session.reconsider(self)


@value
class Asked:
    """What was asked about a partition; an answer that no longer fits it is ignored."""

    following: Following
    fetch_offset: int
    last_epoch: int = -1
    log_start_offset: int = -1

    def holds(self, following: Following) -> bool:
        """Whether the same would be asked now."""
        log = following.partition.log
        return (
            self.following is following
            and self.fetch_offset == log.log_end_offset
            and self.last_epoch == log.epochs.latest_epoch
            and self.log_start_offset == log.log_start_offset
        )


class FollowerSession:
    """What the leader knows of our questions; `asked` is all of it, by the names that answers use."""

    def __init__(self, *, wanted: bool = True) -> None:
        """`wanted`: whether the leader is to remember anything; otherwise each request is a full one, by itself."""
        self._first_epoch = FIRST_EPOCH if wanted else NO_EPOCH
        self.id = NO_SESSION
        self.epoch = self._first_epoch
        """The next request's."""
        self.asked: dict[Position, Asked] = {}
        self.without_id = 0
        """How many of the partitions are of topics to which the controller has given no id."""
        self._by_id = True
        self._following: dict[Following, None] = {}
        self._changed: dict[Following, None] = {}
        self._gone: dict[Following, None] = {}

    def __len__(self) -> int:
        return len(self._following)

    def add(self, one: Following) -> None:
        """Ask for this partition, too, from the next request on."""
        if one.session is not self:
            one.session = self
            self.without_id += one.partition.topic_id == ZERO_UUID
            self._following[one] = self._changed[one] = None

    def remove(self, one: Following) -> None:
        """Ask for this partition no more, if it was asked for here."""
        if one.session is self:
            one.session = None
            self.without_id -= one.partition.topic_id == ZERO_UUID
            del self._following[one]
            self._changed.pop(one, None)
            self._gone[one] = None
            one.partition.listeners.pop(one, None)

    def reconsider(self, one: Following) -> None:
        """Something has changed about this partition."""
        self._changed[one] = None

    def restart(self) -> None:
        """Ask in full next time, in place of the session that the leader may still remember."""
        self.epoch = self._first_epoch

    def request(self, settings: BrokerSettings, *, by_id: bool, broker_epoch: int, max_wait_ms: int) -> FetchRequest:
        """The next request, after which `asked` says what is asked of all partitions."""
        if by_id != self._by_id:
            self.restart()
        self._by_id = by_id
        if self.epoch == self._first_epoch:
            self.asked = {}
            self._changed = dict(self._following)
        missing: dict[Position, None] = {}
        for one in self._gone:
            position = self._position(one.partition)
            known = self.asked.get(position)
            if known is not None and known.following is one:
                del self.asked[position]
                missing[position] = None
        changed = []
        for one in self._changed:
            position = self._position(one.partition)
            missing.pop(position, None)
            known = self.asked.get(position)
            if known is None or not known.holds(one):
                log = one.partition.log
                known = Asked(one, log.log_end_offset, log.epochs.latest_epoch, log.log_start_offset)
                self.asked[position] = known
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
            topics=named(changed, settings.replica_fetch_max_bytes),
            forgotten_topics_data=forgotten(list(missing)),
        )

    def _position(self, partition: Partition) -> Position:
        return (partition.topic_id if self._by_id else partition.topic, partition.index)

    def answered(self, response: FetchResponse) -> bool:
        """Go on after an answer: whether it can be used. Raises KafkaError when asking anew would not help."""
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


def named(asked: list[Asked], partition_max_bytes: int) -> list[FetchTopic]:
    """The partitions to fetch as a request lists them."""
    topics: dict[str, FetchTopic] = {}
    for one in asked:
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


def forgotten(positions: list[Position]) -> list[ForgottenTopic]:
    """The partitions that are no longer fetched, as a request lists them."""
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
