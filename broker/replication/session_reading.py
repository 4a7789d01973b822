"""Reading for an incremental Fetch request (KIP-227): all partitions of its session, told only where there is news.

A session may hold thousands of partitions of which few change between two requests. So a partition that was read for
the same question before, and in which nothing has changed since, costs a few comparisons and gets no row. A follower's
request is its report all the same: that it still has the whole log, which keeps it in the ISR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.broker.replication.partition import Role
from anabranch.broker.replication.reading import NO_EPOCH, Reading
from anabranch.protocol.apis.fetch import FetchableTopicResponse
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.broker.metadata_cache import MetadataCache
    from anabranch.broker.replication.fetch_sessions import FetchSession, Key, SessionPartition
    from anabranch.broker.replication.partition import Partition
    from anabranch.broker.replication.replica_manager import ReplicaManager
    from anabranch.protocol.apis.fetch import FetchRequest, PartitionData


class SessionReading(Reading):
    """One incremental request. `epoch` is the session's when the request was admitted."""

    __slots__ = ("epoch", "is_current", "news", "session")

    def __init__(
        self,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        request: FetchRequest,
        version: int,
        session: FetchSession,
    ) -> None:
        super().__init__(replicas, metadata, request, version)
        self.session = session
        self.epoch = session.epoch
        self.news: list[tuple[Key, PartitionData]] = []
        registered = metadata.broker(self.follower) if self.broker_epoch >= 0 else None
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

    def settle(self) -> int:
        """The answer is sent, unless the session went on without this request while it waited. Raises KafkaError."""
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
        return self.is_current and partition.fetched_again(self.follower, self.broker_epoch, now_ms)

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
