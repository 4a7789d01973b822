"""The committed offsets of one group, and the staged offsets of open transactions.

Every change comes from a journal record, live (after replication) or in replay, and carries that record's journal
offset. Per partition the record with the highest journal offset wins, in whatever order writes complete: a replay of
the journal gives the same map as the live coordinator had.

Offsets of a transaction are staged per producer and take effect at its commit marker, in record order (KIP-98). Until
then the partition is unstable for readers that require stable offsets (KIP-447). Source:
kafka.coordinator.group.GroupMetadata, CommitRecordMetadataAndOffset.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Final

from anabranch.protocol.internal_topics import OffsetCommitValue, OffsetRecordEncoder
from anabranch.protocol.values import slotted

TopicPartition = tuple[str, int]

UNKNOWN_OFFSET: Final = -1
NO_LEADER_EPOCH: Final = -1


@slotted(kw_only=True)
class CommittedOffset:
    """A committed offset of one partition. It changes only when its record is appended, before others see it."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    journal_offset: int = -1
    """The offset of its record in the journal."""

    @classmethod
    def from_value(cls, value: OffsetCommitValue, journal_offset: int) -> CommittedOffset:
        """Create it from the value of a journal record."""
        return cls(
            offset=value.offset,
            leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            commit_timestamp_ms=value.commit_timestamp,
            expire_timestamp_ms=value.expire_timestamp,
            journal_offset=journal_offset,
        )


def records_of(group_id: str, values: Mapping[TopicPartition, CommittedOffset]) -> Iterator[tuple[bytes, bytes]]:
    """Encode the journal records of a commit."""
    encoder = OffsetRecordEncoder(group_id)
    for (topic, index), one in values.items():
        common = (one.leader_epoch, one.metadata, one.commit_timestamp_ms, one.expire_timestamp_ms)
        yield encoder.key(topic, index), encoder.value(one.offset, common)


def tombstones_of(group_id: str, partitions: Iterable[TopicPartition]) -> Iterator[tuple[bytes, None]]:
    """Encode the journal records that delete offsets."""
    encoder = OffsetRecordEncoder(group_id)
    for topic, index in partitions:
        yield encoder.key(topic, index), None


@slotted
class Offsets:
    """All offsets of one group, committed and staged."""

    committed: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    staged: dict[int, dict[TopicPartition, CommittedOffset]] = field(default_factory=dict)
    """Producer id -> the offsets that its open transaction will commit."""
    _in_flight: dict[TopicPartition, int] = field(default_factory=dict)
    """Partition -> the number of commits that are being replicated."""
    _deleted_at: dict[TopicPartition, int] = field(default_factory=dict)
    """Partition -> journal offset of a tombstone that overtook a commit: an older one that completes later is
    ignored."""

    def commit_all(self, values: Mapping[TopicPartition, CommittedOffset], first_offset: int) -> None:
        """Apply the commits of one batch, whose records are in the journal from `first_offset` on."""
        commit = self.commit
        for place, (partition, value) in enumerate(values.items(), first_offset):
            value.journal_offset = place
            commit(partition, value)

    def commit(self, partition: TopicPartition, value: CommittedOffset) -> bool:
        """Apply a commit unless a later record was applied; return whether it was applied."""
        current = self.committed.get(partition)
        if current is not None:
            if value.journal_offset < current.journal_offset:
                return False
        elif self._deleted_at:
            if value.journal_offset < self._deleted_at.get(partition, -1):
                return False
            self._deleted_at.pop(partition, None)
        self.committed[partition] = value
        return True

    def delete_all(self, partitions: Iterable[TopicPartition], first_offset: int) -> None:
        """Apply the tombstones of one batch, which are in the journal from `first_offset` on."""
        delete = self.delete
        for place, partition in enumerate(partitions, first_offset):
            delete(partition, place)

    def delete(self, partition: TopicPartition, journal_offset: int) -> None:
        """Apply a tombstone unless a later commit was applied; staged offsets before it are dropped."""
        for producer_id, staged in list(self.staged.items()) if self.staged else ():
            if partition in staged and staged[partition].journal_offset < journal_offset:
                del staged[partition]
                if not staged:
                    del self.staged[producer_id]
        current = self.committed.get(partition)
        if current is None or current.journal_offset <= journal_offset:
            self.committed.pop(partition, None)
            if partition in self._in_flight:
                self._deleted_at[partition] = max(journal_offset, self._deleted_at.get(partition, -1))

    def stage_all(self, producer_id: int, values: Mapping[TopicPartition, CommittedOffset], first_offset: int) -> None:
        """Stage the offsets of one batch, whose records are in the journal from `first_offset` on."""
        stage = self.stage
        for place, (partition, value) in enumerate(values.items(), first_offset):
            value.journal_offset = place
            stage(producer_id, partition, value)

    def stage(self, producer_id: int, partition: TopicPartition, value: CommittedOffset) -> None:
        """Stage an offset of an open transaction; the last record of a partition wins."""
        self.staged.setdefault(producer_id, {})[partition] = value

    def settle(self, producer_id: int, *, commit: bool, marker_offset: int | None = None) -> list[TopicPartition]:
        """Commit or drop the staged offsets of a transaction that has ended; return the changed partitions.

        Offsets behind the marker stay staged: they belong to the producer's next transaction. None: there are none.
        """
        staged = self.staged.pop(producer_id, {})
        if marker_offset is not None:
            later = {partition: one for partition, one in staged.items() if one.journal_offset > marker_offset}
            if later:
                self.staged[producer_id] = later
                staged = {partition: one for partition, one in staged.items() if partition not in later}
        if not commit:
            return []
        return [partition for partition, value in staged.items() if self.commit(partition, value)]

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """Mark partitions whose commits are being written; they are unstable until `end`."""
        in_flight = self._in_flight
        for partition in partitions:
            in_flight[partition] = in_flight.get(partition, 0) + 1

    def end(self, partitions: Iterable[TopicPartition]) -> None:
        """Unmark partitions whose commits were written or have failed."""
        in_flight = self._in_flight
        for partition in partitions:
            left = in_flight.pop(partition) - 1
            if left:
                in_flight[partition] = left

    def is_being_written(self, partition: TopicPartition) -> bool:
        """Return whether a commit of the partition is being written."""
        return partition in self._in_flight

    def unstable(self, partition: TopicPartition) -> bool:
        """Return whether an open transaction, or a commit that is being written, may change the partition's offset."""
        if partition in self._in_flight:
            return True
        return bool(self.staged) and any(partition in staged for staged in self.staged.values())

    @property
    def is_any_unstable(self) -> bool:
        """Whether `unstable` may be true of a partition."""
        return bool(self._in_flight or self.staged)

    def partitions(self) -> list[TopicPartition]:
        """Return all partitions with a committed or staged offset."""
        known = dict.fromkeys(self.committed)
        for staged in self.staged.values():
            known.update(dict.fromkeys(staged))
        return list(known)

    def partitions_of(self, topics: Collection[str]) -> list[TopicPartition]:
        """Return the partitions of these topics with an offset that is committed, staged or being written."""
        return [one for one in dict.fromkeys([*self.partitions(), *self._in_flight]) if one[0] in topics]

    def last_record(self, partition: TopicPartition) -> int:
        """Return the journal offset of the last record of a partition, committed or staged; -1 if there is none."""
        known = [staged[partition] for staged in self.staged.values() if partition in staged]
        if partition in self.committed:
            known.append(self.committed[partition])
        return max((one.journal_offset for one in known), default=-1)

    def offset_of(self, partition: TopicPartition) -> int:
        """Return the committed offset, -1 if there is none."""
        known = self.committed.get(partition)
        return UNKNOWN_OFFSET if known is None else known.offset

    def __bool__(self) -> bool:
        return bool(self.committed or self.staged)

    def expired_offsets(
        self, now_ms: int, retention_ms: int, *, since_ms: int | None, subscribed: frozenset[str] = frozenset()
    ) -> list[TopicPartition]:
        """Return the unsubscribed partitions whose committed offset has expired (KIP-211).

        An explicit expiry time wins. Otherwise an offset expires `retention_ms` after `since_ms`, or after its commit
        if that is None. Offsets of `subscribed` topics, and of partitions with a commit being written, do not expire.
        """
        gone = []
        for partition, offset in self.committed.items():
            if offset.expire_timestamp_ms != -1:
                due_ms = offset.expire_timestamp_ms
            else:
                due_ms = (offset.commit_timestamp_ms if since_ms is None else since_ms) + retention_ms
            if due_ms <= now_ms and partition[0] not in subscribed and not self.unstable(partition):
                gone.append(partition)
        return gone
