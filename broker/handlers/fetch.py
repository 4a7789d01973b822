"""Fetch: batches from partitions, for consumers up to what is committed, for followers up to the log's end.

A request that finds fewer than `min_bytes` waits until a partition it names changes, or `max_wait_ms` pass; no timer
polls. It goes on at once, and shows the reason, when a partition's leader epoch changes meanwhile (KIP-320).

A follower's request is also its report: everything below its fetch offset is replicated. Where its last epoch is
not the leader's history it gets the diverging epoch instead of records (KIP-595), and so does a consumer that sends
one.

Stored bytes go into the answer as they are. Sessions (KIP-227) are answered as by a broker whose cache is full:
with session id 0, which makes every client send full requests. Versions 0 to 17; before v4 there is no format for
the batches this broker stores, so those versions get UNSUPPORTED_VERSION where there is something to read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.api import RequestContext, handles
from broker.handlers.leader_hints import HINTED, LeaderHints
from broker.replication.partition import Role
from protocol.apis.fetch import (
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
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.replication.partition import Partition

READ_COMMITTED: Final = 1
FIRST_VERSION_WITH_BATCHES: Final = 4
FIRST_VERSION_ON_FOLLOWERS: Final = 11
FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
NO_EPOCH: Final = EpochEndOffset()
NO_LEADER: Final = LeaderIdAndEpoch()
NO_SNAPSHOT: Final = SnapshotId()


@handles(FetchRequest, versions="0-17")
async def fetch(ctx: RequestContext, request: FetchRequest) -> FetchResponse:
    """Read now; if that is too little, wait and read again."""
    if request.session_epoch > 0:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
    reading = Reading(ctx, request)
    responses = reading.read(report=True)
    if not reading.enough and request.max_wait_ms > 0:
        replicas = ctx.services.replicas
        await replicas.park(replicas.fetches, reading.watched, request.max_wait_ms, reading.ready)
        responses = reading.read(report=False)
    endpoints = [
        NodeEndpoint(node_id=one.id, host=one.host, port=one.port, rack=one.rack)
        for one in reading.hints.brokers.values()
    ]
    return FetchResponse(responses=responses, node_endpoints=endpoints)


class Reading:
    """One Fetch request on its way to an answer."""

    __slots__ = (
        "broker_epoch", "committed", "ctx", "enough", "follower", "hints", "left", "replicas", "request", "size",
        "sizes", "watched",
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
                aborted_transactions=None,
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
        records: bytes | bytearray | memoryview = b""
        if offset < limit:
            records = self._records(partition, asked, limit)
        self.watched[partition] = (asked, partition.leader_epoch)
        aborted = None
        if self.committed:
            found = log.aborted_transactions(offset, limit) if records else ()
            aborted = [AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset) for one in found]
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
        if self.ctx.version < FIRST_VERSION_WITH_BATCHES:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, "batches are stored in format 2: Fetch v4 or newer reads them"
            )
        first = self.size == 0
        if not first and self.left <= 0:
            return b""
        # The first batch of an answer is never withheld: a consumer must be able to get past any batch.
        records = partition.log.read(
            asked.fetch_offset,
            max(0, min(asked.partition_max_bytes, self.left)),
            limit_offset=limit,
            min_one_batch=first,
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
        self.sizes[partition] = len(
            partition.log.read(
                asked.fetch_offset, asked.partition_max_bytes, limit_offset=self._limit(partition), min_one_batch=True
            )
        )
        return sum(self.sizes.values()) >= self.request.min_bytes


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
