"""The committed offsets of one group, and those that wait for their transaction to end.

Every change comes from a record of the journal, live (after it was replicated) or in replay, and carries that record's
offset there. Per partition the record with the highest journal offset wins, whatever order completions arrive in: so
replaying the journal gives the very map that the live coordinator had.

Offsets of a transaction are staged per producer and take effect at its commit marker, in the order of their records
(KIP-98); until then they make a partition unstable for readers that ask for stable offsets only (KIP-447).
Source: kafka.coordinator.group.GroupMetadata, CommitRecordMetadataAndOffset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from anabranch.protocol.internal_topics import OffsetCommitKey, OffsetCommitValue, encode_key, encode_offset
from anabranch.protocol.values import value

TopicPartition = tuple[str, int]

UNKNOWN_OFFSET: Final = -1
NO_LEADER_EPOCH: Final = -1


@value(kw_only=True)
class CommittedOffset:
    """How far the group is in one partition. `journal_offset` is where that is written."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    journal_offset: int = -1

    def to_value(self) -> OffsetCommitValue:
        """The record of the journal that keeps it."""
        return OffsetCommitValue(
            offset=self.offset,
            leader_epoch=self.leader_epoch,
            metadata=self.metadata,
            commit_timestamp=self.commit_timestamp_ms,
            expire_timestamp=self.expire_timestamp_ms,
        )

    @classmethod
    def from_value(cls, value: OffsetCommitValue, journal_offset: int) -> CommittedOffset:
        """The value from a record of the journal."""
        return cls(
            offset=value.offset,
            leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            commit_timestamp_ms=value.commit_timestamp,
            expire_timestamp_ms=value.expire_timestamp,
            journal_offset=journal_offset,
        )


def records_of(group_id: str, values: Mapping[TopicPartition, CommittedOffset]) -> list[tuple[bytes, bytes | None]]:
    """The journal's record of a commit."""
    return [
        (encode_key(OffsetCommitKey(group=group_id, topic=topic, partition=index)), encode_offset(value.to_value()))
        for (topic, index), value in values.items()
    ]


@dataclass(slots=True)
class Offsets:
    """All offsets of one group."""

    committed: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    staged: dict[int, dict[TopicPartition, CommittedOffset]] = field(default_factory=dict)
    """Producer id -> what its open transaction will commit."""
    _in_flight: dict[TopicPartition, int] = field(default_factory=dict)
    """How many commits of a partition are on their way to the other replicas."""
    _deleted_at: dict[TopicPartition, int] = field(default_factory=dict)
    """Journal offset of the tombstone, so that an older commit that completes late does not bring the offset back."""

    def commit(self, partition: TopicPartition, value: CommittedOffset) -> bool:
        """Take over a commit unless a later record is known already; says whether it did."""
        current = self.committed.get(partition)
        newest = self._deleted_at.get(partition, -1) if current is None else current.journal_offset
        if value.journal_offset < newest:
            return False
        self._deleted_at.pop(partition, None)
        self.committed[partition] = value
        return True

    def delete(self, partition: TopicPartition, journal_offset: int) -> None:
        """Take over a tombstone unless a later commit is known already. What was staged before it goes too."""
        for producer_id, staged in list(self.staged.items()):
            if partition in staged and staged[partition].journal_offset < journal_offset:
                del staged[partition]
                if not staged:
                    del self.staged[producer_id]
        current = self.committed.get(partition)
        if current is None or current.journal_offset <= journal_offset:
            self.committed.pop(partition, None)
            self._deleted_at[partition] = max(journal_offset, self._deleted_at.get(partition, -1))

    def stage(self, producer_id: int, partition: TopicPartition, value: CommittedOffset) -> None:
        """Remember what a transaction wants to commit: the last of its records for a partition counts."""
        self.staged.setdefault(producer_id, {})[partition] = value

    def settle(self, producer_id: int, *, commit: bool) -> list[TopicPartition]:
        """The transaction ended. Returns the partitions whose committed offset changed."""
        staged = self.staged.pop(producer_id, {})
        if not commit:
            return []
        return [partition for partition, value in staged.items() if self.commit(partition, value)]

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """Commits are on their way. They take effect, or fail, until `end`."""
        for partition in partitions:
            self._in_flight[partition] = self._in_flight.get(partition, 0) + 1

    def end(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that the commits of these partitions have ended, stored or not."""
        for partition in partitions:
            left = self._in_flight.pop(partition) - 1
            if left:
                self._in_flight[partition] = left

    def unstable(self, partition: TopicPartition) -> bool:
        """Whether an open transaction, or a commit that is on its way, may change the partition's offset."""
        return partition in self._in_flight or any(partition in staged for staged in self.staged.values())

    def partitions(self) -> list[TopicPartition]:
        """All that the journal has something about: committed, or wanted by an open transaction."""
        known = dict.fromkeys(self.committed)
        for staged in self.staged.values():
            known.update(dict.fromkeys(staged))
        return list(known)

    def offset_of(self, partition: TopicPartition) -> int:
        """The committed offset, -1 when unknown."""
        known = self.committed.get(partition)
        return UNKNOWN_OFFSET if known is None else known.offset

    def __bool__(self) -> bool:
        return bool(self.committed or self.staged)

    def expired(
        self, now_ms: int, retention_ms: int, *, since_ms: int | None, subscribed: frozenset[str] = frozenset()
    ) -> list[TopicPartition]:
        """The partitions whose committed offset has expired (KIP-211): no member consumes them, and their time is over.

        An explicit expiry wins; otherwise an offset lives for `retention_ms` past `since_ms`, or past its own commit if
        that is None. Topics that are `subscribed` keep theirs, and so does a partition with a commit on its way.
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
