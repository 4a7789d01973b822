"""Partitions on logs in memory, and what a controller or a leader says about them."""

from __future__ import annotations

from typing import Any

from anabranch.broker.replication.partition import Partition, ReplicaRules
from anabranch.broker.storage.log import PartitionLog
from anabranch.broker.storage.log_settings import LogSettings
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.protocol.apis.fetch import PartitionData
from anabranch.protocol.apis.leader_and_isr import LeaderAndIsrPartitionState
from anabranch.protocol.errors import ErrorCode
from tests.broker.replication.replica_cluster import batch

TOPIC_ID = b"0123456789abcdef"


def hosted(rules: ReplicaRules | None = None, **more: int) -> Partition:
    """The replica of broker 1, empty and without a role."""
    log = PartitionLog.open(MemoryFiles(), "t-0", LogSettings(), 0)
    return Partition("t", 0, TOPIC_ID, log, rules or ReplicaRules(1), **more)


def state_of(
    leader: int = 1, epoch: int = 5, isr: tuple[int, ...] = (1, 2, 3), **more: Any
) -> LeaderAndIsrPartitionState:
    """A row of LeaderAndIsr."""
    fields = {"partition_epoch": 7, "replicas": [1, 2, 3], **more}
    return LeaderAndIsrPartitionState(
        partition_index=0, controller_epoch=1, leader=leader, leader_epoch=epoch, isr=list(isr), **fields
    )


def follower(*epochs: tuple[int, int]) -> Partition:
    """A follower of broker 2 under epoch 9 whose log has `count` records of each epoch."""
    partition = hosted()
    for epoch, count in epochs:
        partition.log.epochs.assign(epoch, partition.log.log_end_offset)
        for _ in range(count):
            partition.log.append_as_leader(batch("v"), leader_epoch=epoch, now_ms=1)
    partition.become_follower(state_of(2, 9, (2,), replicas=[1, 2]))
    return partition


def fetched_row(code: ErrorCode = ErrorCode.NONE, **more: Any) -> PartitionData:
    """A leader's answer about the partition."""
    fields = {"high_watermark": 4, "log_start_offset": 0, "records": b"", **more}
    return PartitionData(partition_index=0, error_code=code, **fields)
