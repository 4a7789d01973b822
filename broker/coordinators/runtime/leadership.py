"""The partitions of an internal topic that this broker leads, each with the state from its journal.

A partition is loaded when its leadership starts and closed when it ends; in between the coordinator uses its *shard*.
While it loads, clients get COORDINATOR_LOAD_IN_PROGRESS and retry; once it is closed, they get NOT_COORDINATOR and find
the new coordinator. Groups and transactions share this class; their shards differ.

Source: kafka.coordinator.group.GroupMetadataManager, kafka.coordinator.transaction.TransactionStateManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from anabranch.broker.coordinators.runtime.coordinator_tasks import CoordinatorTasks
from anabranch.broker.coordinators.runtime.journal import Journal, JournalRecord, TransactionEnd
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.hashing import partition_of_group

log: Final = logging.getLogger(__name__)


class JournalShard(Protocol):
    """The coordinator's state for one partition of its topic."""

    partition: int
    leader_epoch: int
    loading: bool

    def apply(self, entry: JournalRecord | TransactionEnd) -> None:
        """Apply the next entry of the journal while loading. Raises DecodeError."""


Shard = TypeVar("Shard", bound=JournalShard)


class Leadership(Generic[Shard]):
    """The shards of one internal topic."""

    def __init__(
        self,
        journal: Journal,
        background: CoordinatorTasks,
        *,
        partition_count: Callable[[], int | None],
        open_shard: Callable[[int, int], Shard],
        on_loaded: Callable[[Shard], None],
        on_closed: Callable[[Shard, ErrorCode], None],
    ) -> None:
        """`partition_count` returns the topic's partition count, None if this broker does not know the topic.

        `open_shard(partition, leader_epoch)` creates an empty shard; callbacks run after its load and its close.
        """
        self._journal = journal
        self._background = background
        self._partition_count = partition_count
        self._open_shard = open_shard
        self._on_loaded = on_loaded
        self._on_closed = on_closed
        self._stopped = False
        self.shards: dict[int, Shard] = {}

    def on_leader(self, topic: str, partition: int, leader_epoch: int) -> None:
        """Load a partition that this broker now leads; if it is loaded already, update its leader epoch."""
        if topic != self._journal.topic or self._stopped:
            return
        shard = self.shards.get(partition)
        if shard is not None:
            shard.leader_epoch = leader_epoch
            return
        shard = self.shards[partition] = self._open_shard(partition, leader_epoch)
        self._background.spawn(self._load(shard))

    def on_resign(self, topic: str, partition: int) -> None:
        """Close a partition that this broker no longer leads."""
        if topic == self._journal.topic:
            self._close(partition, ErrorCode.NOT_COORDINATOR)

    def close_all(self, error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        """Close all shards; the partitions that this broker still leads are loaded after the next LeaderAndIsr."""
        for partition in list(self.shards):
            self._close(partition, error)

    def stop(self) -> None:
        """Close all shards, which rejects their waiting requests, and open no more."""
        self._stopped = True
        self.close_all(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    @property
    def loading(self) -> bool:
        """Whether some shard is loading."""
        return any(shard.loading for shard in self.shards.values())

    def shard_of(self, name: str) -> Shard:
        """Return the shard of a group or transactional id.

        Raises NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
        """
        if self._stopped:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator is shutting down")
        count = self._partition_count()
        if count is None and self.shards:
            # A controller may name leaders before topics. A guess, such as the configured count, may be another shard.
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "this broker has no metadata of the topic yet")
        shard = None if count is None else self.shards.get(partition_of_group(name, count))
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{name!r} has another coordinator")
        if shard.loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{name!r} is still being loaded")
        return shard

    async def _load(self, shard: Shard) -> None:
        journal, partition = self._journal, shard.partition
        try:
            await journal.replay(partition, shard.apply)
        except KafkaError as error:
            log.info("loading %s-%d was abandoned: %s", journal.topic, partition, error)
            if self.shards.get(partition) is shard:
                del self.shards[partition]
            return
        if self.shards.get(partition) is shard:  # otherwise leadership ended during the load
            shard.loading = False
            self._on_loaded(shard)

    def _close(self, partition: int, error: ErrorCode) -> None:
        shard = self.shards.pop(partition, None)
        if shard is not None:
            self._on_closed(shard, error)
