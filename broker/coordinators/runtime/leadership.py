"""Which partitions of an internal topic this broker leads, each with what its journal says.

A partition is loaded when its leadership comes and closed when it goes; between the two its *shard* is what the
coordinator works with. A client that asks while it loads hears COORDINATOR_LOAD_IN_PROGRESS and tries again; one that
asks when it is closed hears NOT_COORDINATOR and looks for the new coordinator. Groups and transactions share this: they
differ in what a shard makes of the journal's entries.

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
    """The state that a coordinator keeps of one partition of its topic."""

    partition: int
    leader_epoch: int
    loading: bool

    def apply(self, entry: JournalRecord | TransactionEnd) -> None:
        """Take in the next entry of the journal while loading. Raises DecodeError."""


Shard = TypeVar("Shard", bound=JournalShard)


class Leadership(Generic[Shard]):
    """The shards of one internal topic."""

    def __init__(
        self,
        journal: Journal,
        background: CoordinatorTasks,
        *,
        partition_count: Callable[[], int],
        open_shard: Callable[[int, int], Shard],
        on_loaded: Callable[[Shard], None],
        on_closed: Callable[[Shard, ErrorCode], None],
    ) -> None:
        """`open_shard(partition, leader_epoch)` makes an empty shard; the other two hear of its life."""
        self._journal = journal
        self._background = background
        self._partition_count = partition_count
        self._open_shard = open_shard
        self._on_loaded = on_loaded
        self._on_closed = on_closed
        self._stopped = False
        self.shards: dict[int, Shard] = {}

    def on_leader(self, topic: str, partition: int, leader_epoch: int) -> None:
        """We lead a partition now; if that is news, load it. A mere new epoch changes nothing that is in memory."""
        if topic != self._journal.topic or self._stopped:
            return
        shard = self.shards.get(partition)
        if shard is not None:
            shard.leader_epoch = leader_epoch
            return
        shard = self.shards[partition] = self._open_shard(partition, leader_epoch)
        self._background.spawn(self._load(shard))

    def on_resign(self, topic: str, partition: int) -> None:
        """We lead a partition no longer."""
        if topic == self._journal.topic:
            self._close(partition, ErrorCode.NOT_COORDINATOR)

    def stop(self) -> None:
        """Close all shards, which refuses every request that waits in them, and open none any more."""
        self._stopped = True
        for partition in list(self.shards):
            self._close(partition, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    @property
    def loading(self) -> bool:
        """Whether some shard does not know yet what it has."""
        return any(shard.loading for shard in self.shards.values())

    def shard_of(self, name: str) -> Shard:
        """The shard of a group or transactional id.

        Raises NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
        """
        if self._stopped:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator is shutting down")
        shard = self.shards.get(partition_of_group(name, self._partition_count()))
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{name!r} is not coordinated here")
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
        if self.shards.get(partition) is shard:  # else leadership went away meanwhile
            shard.loading = False
            self._on_loaded(shard)

    def _close(self, partition: int, error: ErrorCode) -> None:
        shard = self.shards.pop(partition, None)
        if shard is not None:
            self._on_closed(shard, error)
