"""Reads the changed partitions of a fetch session for an incremental Fetch request (KIP-227).

A session may hold thousands of partitions. Few of them change between two requests. A partition without changes since
the last read for the same request is idle (`fetch_sessions`): it costs nothing and gets no row. A follower's request
still counts for all its idle partitions: the follower has their whole logs, so it stays in the ISR when records arrive.

A request that waits, or reads in steps, is notified of idle partitions that change, and watches those, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from anabranch.broker.replication.fetch_reader import PARTITIONS_PER_STEP, FetchReader
from anabranch.broker.replication.fetch_sessions import NO_EPOCH as NO_SESSION_EPOCH
from anabranch.protocol.apis.fetch import FetchableTopicResponse
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.broker.metadata.metadata_cache import MetadataCache
    from anabranch.broker.replication.delayed_operation import DelayedOperation
    from anabranch.broker.replication.fetch_sessions import FetchSession, SessionPartition
    from anabranch.broker.replication.partition import Partition
    from anabranch.broker.replication.replica_manager import ReplicaManager
    from anabranch.protocol.apis.fetch import FetchRequest, PartitionData


class SessionFetchReader(FetchReader):
    """One incremental request. `epoch` is the session's when the request was admitted."""

    __slots__ = ("changed_rows", "epoch", "is_current", "parked", "session")

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
        self.changed_rows: list[tuple[SessionPartition, PartitionData]] = []
        self.parked: DelayedOperation[Partition] | None = None
        registered = metadata.broker(self.follower) if self.broker_epoch >= 0 else None
        self.is_current = registered is None or self.broker_epoch >= registered.epoch
        """Whether a follower's broker epoch is the registered one (KIP-903)."""

    def read(self, *, report: bool) -> list[FetchableTopicResponse]:
        """Read the partitions that may have changed, in the session's order."""
        if self._is_overtaken():
            return []
        self._begin_entries(report)
        for entry in self.session.partitions_in_order():
            self._read_entry(entry, report)
        if self.counted >= self.min_bytes:
            self.enough = True
        return self._by_topic()

    @property
    def is_long(self) -> bool:
        """Whether so many partitions may have changed that they have to be read in `steps`."""
        return len(self.session.partitions) > PARTITIONS_PER_STEP

    def steps(self, answer: list[FetchableTopicResponse], *, report: bool) -> Iterator[None]:
        """Read like `read`; partitions that become idle are listened to from their step on."""
        if self._is_overtaken():
            return
        self._begin_entries(report)
        self.session.waiting = self
        for number, entry in enumerate(self.session.partitions_in_order()):
            if number and number % PARTITIONS_PER_STEP == 0:
                yield
                if self._is_overtaken():
                    self.enough = True
                    return
            self._read_entry(entry, report)
        if self.counted >= self.min_bytes:
            self.enough = True
        answer += self._by_topic()

    def _is_overtaken(self) -> bool:
        """Return whether a later request's response has the data."""
        return self.session.epoch != self.epoch

    def _begin_entries(self, report: bool) -> None:
        self._begin(enough=False)
        self.changed_rows.clear()
        session = self.session
        if report:
            # The preferred replica also depends on the metadata.
            brokers = self.metadata.image.brokers if self.rack else None
            session.set_owner(
                (
                    self.follower,
                    self.broker_epoch,
                    self.is_current,
                    self.committed,
                    self.rack,
                    brokers,
                    self.acl_changes,
                )
            )
            session.presence.seen_ms = self.replicas.now_ms()

    def _read_entry(self, entry: SessionPartition, report: bool) -> None:
        name, index = entry.key
        topic = self.replicas.name_of(name) if isinstance(name, bytes) else name
        row = self._answer(topic, entry.requested, report)
        if entry.has_changed(row):
            self.changed_rows.append((entry, row))
        else:
            self._settle(entry, topic, index, row)

    def finish(self) -> int:
        """Record that the response is sent, unless the session continued without this request. Raises KafkaError."""
        session = self.session
        if session.epoch != self.epoch:
            if session.epoch == NO_SESSION_EPOCH:
                raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"{session.id} has ended")
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, f"{session.id} is at {session.epoch}")
        session.waiting = None
        session.on_sent(self.changed_rows)
        for entry, row in self.changed_rows:
            if not (row.error_code or row.records or row.diverging_epoch.epoch >= 0 or row.preferred_read_replica >= 0):
                name, index = entry.key
                self._settle(entry, self.replicas.name_of(name) if isinstance(name, bytes) else name, index, row)
        return session.id

    def start_waiting(self, parked: DelayedOperation[Partition]) -> None:
        """Also listen to the session's idle partitions."""
        self.changed_rows.clear()
        self.parked = parked
        self.session.waiting = self

    def on_change(self, entry: SessionPartition, partition: Partition) -> None:
        """Watch an idle partition that has changed."""
        self.watched[partition] = (entry.requested, entry.leader_epoch)
        if self.parked is not None:
            self.replicas.fetches.watch(self.parked, partition)

    def release(self) -> None:
        """Finish the wait: the session has continued with another request, or has ended."""
        if self.parked is not None:
            self.replicas.fetches.finish(self.parked)

    def _settle(self, entry: SessionPartition, topic: str | None, index: int, row: PartitionData) -> None:
        """Mark a partition idle if another read would find nothing until it changes, and nothing else than `row`."""
        partition = None if topic is None else self.replicas.replica(topic, index)
        if partition is None or entry.requested.fetch_offset < self._limit(partition):
            return
        if row.high_watermark != partition.high_watermark or row.log_start_offset != partition.log.log_start_offset:
            return
        follower = None
        if self.follower >= 0:
            if not partition.at_rest(self.follower, self.broker_epoch):
                return
            follower = partition.followers[self.follower]
        entry.mark_idle(partition, follower)
        self.watched.pop(partition, None)

    def _by_topic(self) -> list[FetchableTopicResponse]:
        topics: dict[bytes | str, FetchableTopicResponse] = {}
        for entry, row in self.changed_rows:
            name = entry.key[0]
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = FetchableTopicResponse(partitions=[])
                if isinstance(name, bytes):
                    topic.topic_id = name
                else:
                    topic.topic = name
            topic.partitions.append(row)
        return list(topics.values())
