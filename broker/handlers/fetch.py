"""Fetch: batches from partitions, for consumers up to what is committed, for followers up to the log's end.

A request that finds fewer than `min_bytes` waits until a partition it names changes, or `max_wait_ms` pass; no timer
polls. It goes on at once, and shows the reason, when a partition's leader epoch changes meanwhile (KIP-320).

A follower's request is also its report: everything below its fetch offset is replicated. Where its last epoch is
not the leader's history it gets the diverging epoch instead of records (KIP-595), and so does a consumer that sends
one.

Stored bytes go into the answer as they are. In a session (KIP-227) a request names only what changed, and so does its
answer; a partition where nothing did costs a few comparisons. A consumer may be sent to a replica in its own rack
(KIP-392). Versions 0 to 17; `old_fetch` turns answers into what those before v10 can carry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.broker.api import RequestContext, handles
from anabranch.broker.handlers.leader_hints import HINTED, LeaderHints
from anabranch.broker.replication.partition import Role
from anabranch.broker.replication.replica_selector import preferred_replica
from anabranch.protocol.apis.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.broker.replication.fetch_sessions import FetchSession, Key, SessionPartition
    from anabranch.broker.replication.partition import Partition

READ_COMMITTED: Final = 1
LAST_VERSION_WITH_HARD_LIMITS: Final = 2
FIRST_VERSION_WITH_ZSTD: Final = 10
FIRST_VERSION_ON_FOLLOWERS: Final = 11
FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
UNKNOWN: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
NO_EPOCH: Final = EpochEndOffset()
NO_LEADER: Final = LeaderIdAndEpoch()
NO_SNAPSHOT: Final = SnapshotId()


@handles(FetchRequest, versions="0-17")
async def fetch(ctx: RequestContext, request: FetchRequest) -> FetchResponse:
    """Read now; if that is too little, wait and read again."""
    reading = Reading(ctx, request)
    if request.session_epoch >= 0 or request.session_id:
        try:
            reading = reading_in_session(ctx, request)
        except KafkaError as error:
            return FetchResponse(error_code=error.code, responses=[])
    responses = reading.read(report=True)
    if not reading.enough and request.max_wait_ms > 0:
        replicas = ctx.services.replicas
        await replicas.rooms.park(replicas.fetches, reading.watched, request.max_wait_ms, reading.ready)
        responses = reading.read(report=False)
    try:
        session_id = reading.settle(responses)
    except KafkaError as error:
        return FetchResponse(error_code=error.code, session_id=request.session_id, responses=[])
    if ctx.version < FIRST_VERSION_WITH_ZSTD:
        from anabranch.broker.handlers.old_fetch import downgrade

        await downgrade(ctx, request, responses)
    endpoints = [
        NodeEndpoint(node_id=one.id, host=one.host, port=one.port, rack=one.rack)
        for one in reading.hints.brokers.values()
    ]
    return FetchResponse(session_id=session_id, responses=responses, node_endpoints=endpoints)


def reading_in_session(ctx: RequestContext, request: FetchRequest) -> Reading:
    """What to do for a request that speaks of a session. Raises KafkaError for one that does not fit its session."""
    if request.session_epoch > 0:
        by_id = ctx.version >= FIRST_VERSION_WITH_TOPIC_IDS
        sessions = ctx.services.fetch_sessions
        session = sessions.admit(request, by_id=by_id, now_ms=ctx.services.replicas.now_ms())
        return Reading(ctx, request) if session is None else SessionReading(ctx, request, session)
    if request.session_id:
        ctx.services.fetch_sessions.close(request.session_id)
    return Reading(ctx, request)


class Reading:
    """One Fetch request on its way to an answer."""

    __slots__ = (
        "broker_epoch", "committed", "ctx", "enough", "follower", "hints", "left", "rack", "replicas", "request",
        "size", "sizes", "watched",
    )  # fmt: skip

    def __init__(self, ctx: RequestContext, request: FetchRequest) -> None:
        self.ctx = ctx
        self.request = request
        self.replicas = ctx.services.replicas
        self.hints = LeaderHints(ctx.services.metadata)
        state = request.replica_state
        self.follower = state.replica_id if ctx.version >= 15 else request.replica_id
        self.broker_epoch = state.replica_epoch if ctx.version >= 15 else -1
        self.committed = request.isolation_level == READ_COMMITTED
        selects = request.rack_id and self.follower < 0 and self.replicas.settings.replica_selector_class
        self.rack = request.rack_id if selects else ""
        """Where the consumer would rather read, if this broker sends consumers elsewhere at all."""
        self.watched: dict[Partition, tuple[FetchPartition, int]] = {}
        """Per readable partition: what was asked, and the leader epoch it was read under."""
        self.sizes: dict[Partition, int] = {}
        self.size = 0
        self.left = 0
        self.enough = False
        """Whether there is no reason to wait: enough bytes, or something the client must hear."""

    def read(self, *, report: bool) -> list[FetchableTopicResponse]:
        """Read every partition. `report`: a follower's offsets count. They do when it asks, not when it is woken."""
        request = self.request
        self.size, self.enough = 0, not request.topics
        self.left = min(request.max_bytes, self.replicas.settings.fetch_max_bytes)
        self.watched.clear()
        answer = []
        for topic in request.topics:
            by_id = self.ctx.version >= FIRST_VERSION_WITH_TOPIC_IDS
            name = self.replicas.name_of(topic.topic_id) if by_id else topic.topic
            rows = [self._answer(name, asked, report) for asked in topic.partitions]
            answer.append(FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=rows))
        if self.size >= request.min_bytes:
            self.enough = True
        return answer

    def settle(self, answer: list[FetchableTopicResponse]) -> int:
        """This is the answer: open the session that was asked for. Its id, or 0."""
        if self.request.session_epoch != 0:
            return 0
        return self.ctx.services.fetch_sessions.open(
            self.request,
            answer,
            is_follower=self.follower >= 0,
            by_id=self.ctx.version >= FIRST_VERSION_WITH_TOPIC_IDS,
            now_ms=self.replicas.now_ms(),
            draw=self.ctx.services.rng.randint,
        )

    def _answer(self, topic: str | None, asked: FetchPartition, report: bool) -> PartitionData:
        try:
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
            return self._read(topic, asked, report)
        except KafkaError as error:
            self.enough = True
            leader = NO_LEADER
            if error.code in HINTED and self.ctx.version >= 16 and topic is not None:
                leader_id, epoch = self.hints.leader_of(topic, asked.partition)
                leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=epoch)
            return PartitionData(
                partition_index=asked.partition,
                error_code=error.code,
                high_watermark=-1,
                aborted_transactions=[] if error.code in UNKNOWN else None,
                current_leader=leader,
                records=b"",
            )

    def _read(self, topic: str, asked: FetchPartition, report: bool) -> PartitionData:
        partition = self.replicas.partition(topic, asked.partition)
        self._check(partition, asked)
        log, offset = partition.log, asked.fetch_offset
        diverging = NO_EPOCH
        if asked.last_fetched_epoch >= 0:
            diverging = diverging_epoch(partition, asked)
        if diverging is not NO_EPOCH:
            self.enough = True
            limit = offset
        else:
            if not log.log_start_offset <= offset <= log.log_end_offset:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is not in {partition!r}")
            if report and self.follower >= 0:
                self.replicas.record_follower_fetch(
                    partition,
                    self.follower,
                    offset,
                    log_start_offset=asked.log_start_offset,
                    broker_epoch=self.broker_epoch,
                )
            limit = self._limit(partition)
        preferred = -1
        if self.rack:
            preferred = preferred_replica(partition, offset, self.rack, self.ctx.services.metadata)
            if preferred >= 0:
                self.enough = True
                limit = offset  # the records are to be had there
        records: bytes | bytearray | memoryview = b""
        if offset < limit:
            records = self._records(partition, asked, limit)
        self.watched[partition] = (asked, partition.leader_epoch)
        aborted = None
        if self.committed:
            aborted = [
                AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
                for one in log.aborted_in(records, offset)
            ]
        return PartitionData(
            partition_index=asked.partition,
            error_code=0,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=log.log_start_offset,
            diverging_epoch=diverging,
            current_leader=NO_LEADER,
            snapshot_id=NO_SNAPSHOT,
            aborted_transactions=aborted,
            preferred_read_replica=preferred,
            records=records,
        )

    def _check(self, partition: Partition, asked: FetchPartition) -> None:
        if self.follower >= 0 or self.ctx.version < FIRST_VERSION_ON_FOLLOWERS:
            partition.check_leader()
        elif partition.role is Role.NONE:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition!r} has no role yet")
        partition.check_epoch(asked.current_leader_epoch)
        if self.follower >= 0 and self.follower not in partition.followers:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            if asked.current_leader_epoch >= 0:
                code = ErrorCode.UNKNOWN_LEADER_EPOCH
            raise KafkaError(code, f"{self.follower} is no replica of {partition!r}")

    def _limit(self, partition: Partition) -> int:
        """Where the asker has to stop, exclusive."""
        if self.follower >= 0:
            return partition.log.log_end_offset
        return partition.last_stable_offset if self.committed else partition.high_watermark

    def _records(self, partition: Partition, asked: FetchPartition, limit: int) -> bytes | bytearray | memoryview:
        first = self.size == 0
        if not first and self.left <= 0:
            return b""
        # The first batch of an answer is never withheld: a consumer must be able to get past any batch. (Old ones are
        # to ask for more bytes themselves.)
        records = partition.log.read(
            asked.fetch_offset,
            max(0, min(asked.partition_max_bytes, self.left)),
            limit_offset=limit,
            min_one_batch=first and self.ctx.version > LAST_VERSION_WITH_HARD_LIMITS,
        )
        size = len(records)
        self.size += size
        self.left -= size
        self.sizes[partition] = size
        return records

    def ready(self, partition: Partition) -> bool:
        """Whether a change of `partition` ends the waiting."""
        asked, epoch = self.watched[partition]
        if partition.leader_epoch != epoch or partition.role is Role.NONE:
            return True
        if partition.log.log_end_offset < asked.fetch_offset:
            return True  # truncated
        if self._limit(partition) <= asked.fetch_offset:
            return False
        if self.request.min_bytes <= 1:
            return True
        limit = self._limit(partition)
        try:
            records = partition.log.read(
                asked.fetch_offset, asked.partition_max_bytes, limit_offset=limit, min_one_batch=True
            )
        except KafkaError:
            return True  # reading again says why, to whoever waits and not to whoever has changed the partition
        self.sizes[partition] = len(records)
        return sum(self.sizes.values()) >= self.request.min_bytes


class SessionReading(Reading):
    """An incremental request: reads all partitions of its session, and answers with those that have news."""

    __slots__ = ("epoch", "is_current", "news", "session")

    def __init__(self, ctx: RequestContext, request: FetchRequest, session: FetchSession) -> None:
        super().__init__(ctx, request)
        self.session = session
        self.epoch = session.epoch
        self.news: list[tuple[Key, PartitionData]] = []
        registered = ctx.services.metadata.broker(self.follower) if self.broker_epoch >= 0 else None
        self.is_current = registered is None or self.broker_epoch >= registered.epoch
        """Whether a follower is in the life that is registered now (KIP-903)."""

    def read(self, *, report: bool) -> list[FetchableTopicResponse]:
        """Read what may have changed, by the session's order."""
        self.size, self.enough = 0, False
        self.left = min(self.request.max_bytes, self.replicas.settings.fetch_max_bytes)
        self.watched.clear()
        self.news.clear()
        now_ms = self.replicas.now_ms()
        for key, entry in self.session.partitions.items():
            partition = entry.partition
            if partition is not None and self._is_as_told(entry, partition, report, now_ms):
                self.watched[partition] = (entry.asked, entry.leader_epoch)
            else:
                row = self._row(key, entry, report)
                if entry.is_news(row):
                    self.news.append((key, row))
        if self.size >= self.request.min_bytes:
            self.enough = True
        return self._by_topic()

    def settle(self, answer: list[FetchableTopicResponse]) -> int:
        """This is the answer, unless the session went on without this request while it waited."""
        if self.session.epoch != self.epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, f"{self.session.id} is at {self.session.epoch}")
        self.session.told(self.news)
        return self.session.id

    def _row(self, key: Key, entry: SessionPartition, report: bool) -> PartitionData:
        topic = self.replicas.name_of(key[0]) if isinstance(key[0], bytes) else key[0]
        row = self._answer(topic, entry.asked, report)
        entry.partition = None
        if topic is not None and not row.error_code and row.diverging_epoch is NO_EPOCH and not self.rack:
            entry.partition = self.replicas.partition(topic, key[1])
            entry.leader_epoch = entry.partition.leader_epoch
        return row

    def _is_as_told(self, entry: SessionPartition, partition: Partition, report: bool, now_ms: float) -> bool:
        """Whether reading this partition, which was read for the same question before, would find nothing new."""
        asked, log = entry.asked, partition.log
        end = log.log_end_offset
        if (
            partition.leader_epoch != entry.leader_epoch
            or partition.role is Role.NONE
            or partition.high_watermark != entry.high_watermark
            or log.log_start_offset != entry.log_start_offset
            or not self._limit(partition) <= asked.fetch_offset <= end
            or (asked.last_fetched_epoch >= 0 and asked.last_fetched_epoch != log.epochs.latest_epoch)
        ):
            return False
        if self.follower < 0 or not report:
            return True
        # Its report is the last one again: that it still has everything. Anything more is for the replica manager.
        follower = partition.followers.get(self.follower)
        if (
            follower is None
            or not self.is_current
            or follower.log_end_offset != end
            or follower.broker_epoch != self.broker_epoch
            or partition.high_watermark != end
            or self.follower not in partition.isr
        ):
            return False
        follower.caught_up_ms = follower.last_fetch_ms = now_ms
        follower.leader_end_at_last_fetch = end
        return True

    def _by_topic(self) -> list[FetchableTopicResponse]:
        topics: dict[bytes | str, FetchableTopicResponse] = {}
        for (name, _), row in self.news:
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = FetchableTopicResponse(partitions=[])
                if isinstance(name, bytes):
                    topic.topic_id = name
                else:
                    topic.topic = name
            topic.partitions.append(row)
        return list(topics.values())


def diverging_epoch(partition: Partition, asked: FetchPartition) -> EpochEndOffset:
    """Where the asker's history leaves ours, or NO_EPOCH when it does not."""
    log = partition.log
    if asked.last_fetched_epoch == log.epochs.latest_epoch and asked.fetch_offset <= log.log_end_offset:
        return NO_EPOCH
    epoch, end = log.epochs.end_offset_for(asked.last_fetched_epoch, log.log_end_offset)
    if epoch < 0 or end < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"epoch {asked.last_fetched_epoch} is unknown to {partition!r}")
    if epoch < asked.last_fetched_epoch or end < asked.fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end)
    return NO_EPOCH
