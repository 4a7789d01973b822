"""Reads the partitions of one Fetch request, without waiting.

The handler creates a `FetchReader` for a request, and may wait between two calls of `read`. It reads a long request in
`steps`, between which other requests run; so it asks `has_changed` before it waits. The reader decides how far the
client may read (a follower to the log end, a consumer to the high watermark or the last stable offset), which offsets
and leader epochs are refused, how many bytes each partition gets, and what a follower's fetch reports: that it has
everything below its fetch offset.

A follower or consumer whose last epoch is not in the leader's history gets the diverging epoch instead of records
(KIP-595). Stored bytes are sent unchanged. `SessionFetchReader` adds incremental requests (KIP-227). Sources: Kafka's
`ReplicaManager.fetchMessages` and `readFromLocalLog`, `DelayedFetch`; KIP-320, KIP-392, KIP-951.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from anabranch.broker.quotas.response_memory import UNBOUNDED_BYTES
from anabranch.broker.replication.fetch_sessions import NO_SESSION
from anabranch.broker.replication.leader_hints import HINTED, LeaderHints
from anabranch.broker.replication.partition import Role
from anabranch.broker.replication.replica_selector import preferred_replica
from anabranch.broker.storage.aborted_transactions import offset_behind
from anabranch.protocol.apis.common_structs import LeaderIdAndEpoch
from anabranch.protocol.apis.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
    SnapshotId,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.wire import constructor_of

if TYPE_CHECKING:
    from anabranch.broker.metadata.metadata_cache import MetadataCache
    from anabranch.broker.replication.delayed_operation import DelayedOperation
    from anabranch.broker.replication.partition import Partition
    from anabranch.broker.replication.replica_manager import ReplicaManager

READ_COMMITTED: Final = 1
LAST_VERSION_WITH_HARD_LIMITS: Final = 2
FIRST_VERSION_ON_FOLLOWERS: Final = 11
FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
FIRST_VERSION_WITH_REPLICA_STATE: Final = 15
FIRST_VERSION_WITH_LEADER_HINTS: Final = 16
PARTITIONS_PER_STEP: Final = 250
"""The most partitions that are read without a yield to the event loop: one to three milliseconds."""
UNKNOWN: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
NO_EPOCH: Final = EpochEndOffset()
NO_LEADER: Final = LeaderIdAndEpoch()
NO_SNAPSHOT: Final = SnapshotId()
new_topic_response: Final = constructor_of(FetchableTopicResponse)
new_partition_response: Final = constructor_of(PartitionData)


class FetchReader:
    """One Fetch request: `read`, wait until a partition is `ready`, `read` again."""

    __slots__ = (
        "acl_changes", "broker_epoch", "committed", "compacted", "counted", "enough", "follower", "hints", "left",
        "may_read", "metadata", "min_bytes", "rack", "refuses", "replicas", "request", "room_bytes", "size", "sizes",
        "version", "watched",
    )  # fmt: skip

    def __init__(self, replicas: ReplicaManager, metadata: MetadataCache, request: FetchRequest, version: int) -> None:
        self.replicas = replicas
        self.metadata = metadata
        self.request = request
        self.version = version
        self.hints = LeaderHints(metadata)
        state = request.replica_state
        self.follower = state.replica_id if version >= FIRST_VERSION_WITH_REPLICA_STATE else request.replica_id
        self.broker_epoch = state.replica_epoch if version >= FIRST_VERSION_WITH_REPLICA_STATE else -1
        self.committed = request.isolation_level == READ_COMMITTED
        selects = request.rack_id and self.follower < 0 and self.replicas.settings.replica_selector_class
        self.rack = request.rack_id if selects else ""
        """The consumer's rack, if this broker redirects consumers to other replicas."""
        self.watched: dict[Partition, tuple[FetchPartition, int]] = {}
        """Per readable partition: the row of the request, and the leader epoch at the read."""
        self.sizes: dict[Partition, int] = {}
        """Per partition: the bytes that count for `min_bytes`."""
        self.compacted: set[Partition] = set()
        """The partitions that have nothing at or after the offset: compaction has removed it."""
        self.size = self.counted = 0
        self.left = 0
        self.min_bytes = request.min_bytes
        """The bytes to wait for: at most as many as a response may have."""
        self.room_bytes = UNBOUNDED_BYTES
        """The most bytes of the response that `ResponseMemory` allows."""
        self.may_read: Callable[[str], bool] | None = None
        """Whether the client may read a topic; None if all topics are allowed."""
        self.acl_changes = 0
        """How often the entries have changed that `may_read` decides by."""
        self.enough = False
        """Whether not to wait: there are enough bytes, or something to report at once."""
        self.refuses = False
        """Whether a partition has an error."""

    def read(self, *, report: bool) -> list[FetchableTopicResponse]:
        """Read every partition. `report`: count a follower's offsets; true on arrival, not after a wait."""
        request = self.request
        self._begin(enough=not request.topics)
        answer = []
        for topic in request.topics:
            name = self._name_of(topic)
            rows = [self._answer(name, requested, report) for requested in topic.partitions]
            answer.append(new_topic_response(topic=topic.topic, topic_id=topic.topic_id, partitions=rows))
        if self.counted >= self.min_bytes:
            self.enough = True
        return answer

    @property
    def is_long(self) -> bool:
        """Whether there are so many partitions that they have to be read in `steps`."""
        left = PARTITIONS_PER_STEP
        for topic in self.request.topics:
            left -= len(topic.partitions)
        return left < 0

    def steps(self, answer: list[FetchableTopicResponse], *, report: bool) -> Iterator[None]:
        """Read every partition as `read` does, into `answer`; other requests may run after each step."""
        self._begin(enough=False)
        left = PARTITIONS_PER_STEP
        for topic in self.request.topics:
            name = self._name_of(topic)
            rows: list[PartitionData] = []
            answer.append(new_topic_response(topic=topic.topic, topic_id=topic.topic_id, partitions=rows))
            for requested in topic.partitions:
                if not left:
                    yield
                    left, name = PARTITIONS_PER_STEP, self._name_of(topic)
                left -= 1
                rows.append(self._answer(name, requested, report))
        if self.counted >= self.min_bytes:
            self.enough = True

    def has_changed(self) -> bool:
        """Return whether a partition has changed since its step, so that the request must not wait."""
        return any(map(self.ready, self.watched))

    def _name_of(self, topic: FetchTopic) -> str | None:
        return self.replicas.name_of(topic.topic_id) if self.version >= FIRST_VERSION_WITH_TOPIC_IDS else topic.topic

    def _begin(self, *, enough: bool) -> None:
        self.size, self.counted, self.enough = 0, 0, enough
        self.left = min(self.request.max_bytes, self.replicas.settings.fetch_max_bytes, self.room_bytes)
        self.min_bytes = min(self.request.min_bytes, self.left)
        self.watched.clear()
        self.compacted.clear()

    def start_waiting(self, parked: DelayedOperation[Partition]) -> None:
        """Begin to wait; only watched partitions can change the response."""

    def finish(self) -> int:
        """Record that the last response is sent; return the id of the session that continues with it, or 0."""
        return NO_SESSION

    def _answer(self, topic: str | None, requested: FetchPartition, report: bool) -> PartitionData:
        """Read one partition, or return its error: UNKNOWN_TOPIC_ID for an unknown topic id."""
        try:
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "unknown topic id")
            if self.may_read is not None and not self.may_read(topic):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic)
            return self._read(topic, requested, report)
        except KafkaError as error:
            self.enough = self.refuses = True
            leader = NO_LEADER
            if error.code in HINTED and self.version >= FIRST_VERSION_WITH_LEADER_HINTS and topic is not None:
                leader = self.hints.leader_of(topic, requested.partition)
            return PartitionData(
                partition_index=requested.partition,
                error_code=error.code,
                high_watermark=-1,
                aborted_transactions=[] if error.code in UNKNOWN else None,
                current_leader=leader,
                records=b"",
            )

    def _read(self, topic: str, requested: FetchPartition, report: bool) -> PartitionData:
        partition = self.replicas.partition(topic, requested.partition)
        self._check(partition, requested)
        log, offset = partition.log, requested.fetch_offset
        diverging = NO_EPOCH
        if requested.last_fetched_epoch >= 0:
            diverging = diverging_epoch(partition, requested)
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
                    log_start_offset=requested.log_start_offset,
                    broker_epoch=self.broker_epoch,
                )
            limit = self._limit(partition)
        preferred = -1
        if self.rack:
            preferred = preferred_replica(partition, offset, self.rack, self.metadata)
            if preferred >= 0:
                self.enough = True
                limit = offset  # the preferred replica has the records
        records: bytes | bytearray | memoryview = b""
        if offset < limit:
            records = self._records(partition, requested, limit)
            if partition not in self.compacted and self.counted < self.min_bytes:
                self.enough = self.enough or log.segments.is_older(offset, limit)  # a sealed segment does not grow
        self.watched[partition] = (requested, partition.leader_epoch)
        aborted = None
        if self.committed:
            aborted = [
                AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
                for one in log.producers.aborted_in(records, offset)
            ]
        return new_partition_response(
            partition_index=requested.partition,
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

    def _check(self, partition: Partition, requested: FetchPartition) -> None:
        if partition.role is Role.NONE:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition!r} has no role yet")
        partition.check_epoch(requested.current_leader_epoch)
        if self.follower >= 0 or self.version < FIRST_VERSION_ON_FOLLOWERS:
            partition.check_leader()
        if self.follower >= 0 and self.follower not in partition.followers:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            if requested.current_leader_epoch >= 0:
                code = ErrorCode.UNKNOWN_LEADER_EPOCH
            raise KafkaError(code, f"{self.follower} is no replica of {partition!r}")

    def _limit(self, partition: Partition) -> int:
        if self.follower >= 0:
            return partition.log.log_end_offset
        return partition.last_stable_offset if self.committed else partition.high_watermark

    def _records(self, partition: Partition, requested: FetchPartition, limit: int) -> bytes | bytearray | memoryview:
        first = self.size == 0
        if not first and self.left <= 0:
            return b""
        # The first batch of a response is never withheld, or a consumer could not get past a large batch. (Old
        # clients have to raise their limit themselves.)
        max_bytes = max(0, min(requested.partition_max_bytes, self.left))
        records = partition.log.read(
            requested.fetch_offset,
            max_bytes,
            limit_offset=limit,
            min_one_batch=first and self.version > LAST_VERSION_WITH_HARD_LIMITS,
        )
        size = len(records)
        if not size and partition.log.is_empty_between(requested.fetch_offset, limit):
            self.compacted.add(partition)
            return records
        self.size += size
        self.left -= size
        self.sizes[partition] = self._count(records, requested, max_bytes, limit)
        self.counted += self.sizes[partition]
        return records

    def _count(
        self, records: bytes | bytearray | memoryview, requested: FetchPartition, max_bytes: int, limit: int
    ) -> int:
        """Return how many bytes of a read count for `min_bytes`.

        A read that `max_bytes` has cut counts as `max_bytes`: more are there, and Kafka sends a part of the next batch.
        """
        size = len(records)
        if size < self.min_bytes and offset_behind(records, requested.fetch_offset) < limit:
            return max(size, max_bytes)
        return size

    def ready(self, partition: Partition) -> bool:
        """Return whether a change of `partition` ends the wait."""
        requested, epoch = self.watched[partition]
        if partition.leader_epoch != epoch or partition.role is Role.NONE:
            return True
        if partition.log.log_end_offset < requested.fetch_offset:
            return True  # truncated
        limit = self._limit(partition)
        if limit <= requested.fetch_offset:
            return False
        max_bytes = max(0, requested.partition_max_bytes)
        try:
            if partition in self.compacted and partition.log.is_empty_between(requested.fetch_offset, limit):
                return False
            if self.min_bytes <= 1 or partition.log.segments.is_older(requested.fetch_offset, limit):
                return True
            size = partition.log.size_between(requested.fetch_offset, limit)
            if size > max_bytes:
                size = max(max_bytes, len(partition.log.read(requested.fetch_offset, 0, limit_offset=limit)))
        except KafkaError:
            return True  # the next read raises the error in the waiting request
        self.sizes[partition] = size
        return sum(self.sizes.values()) >= self.min_bytes


def diverging_epoch(partition: Partition, requested: FetchPartition) -> EpochEndOffset:
    """Return where the client's history diverges from this log, or NO_EPOCH if it does not."""
    log = partition.log
    if requested.last_fetched_epoch == log.epochs.latest_epoch and requested.fetch_offset <= log.log_end_offset:
        return NO_EPOCH
    epoch, end = log.epochs.end_offset_for(requested.last_fetched_epoch, log.log_end_offset)
    if epoch < 0 or end < 0:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"epoch {requested.last_fetched_epoch} is unknown to {partition!r}"
        )
    if epoch < requested.last_fetched_epoch or end < requested.fetch_offset:
        if requested.fetch_offset < log.log_start_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{requested.fetch_offset} is not in {partition!r}")
        return EpochEndOffset(epoch=epoch, end_offset=end)
    return NO_EPOCH
