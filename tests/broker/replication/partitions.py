"""Partitions on logs in memory, and what a controller or a leader says about them."""

from __future__ import annotations

from typing import Any

from anabranch.broker.replication.partition import Partition, ReplicaRules
from anabranch.broker.storage.log import PartitionLog
from anabranch.broker.storage.log_append import append_as_leader
from anabranch.broker.storage.log_settings import LogSettings
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.protocol.apis.alter_partition import PartitionDataResult
from anabranch.protocol.apis.fetch import PartitionData
from anabranch.protocol.apis.leader_and_isr import LeaderAndIsrPartitionState
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.records.batch_builder import BatchBuilder
from tests.broker.replication.replica_cluster import batch

TOPIC_ID = b"0123456789abcdef"
LAG_MS = 30_000


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
            append_as_leader(partition.log, batch("v"), leader_epoch=epoch, now_ms=1)
    partition.become_follower(state_of(2, 9, (2,), replicas=[1, 2]))
    return partition


def fetched_row(code: ErrorCode = ErrorCode.NONE, **more: Any) -> PartitionData:
    """A leader's answer about the partition."""
    fields = {"high_watermark": 4, "log_start_offset": 0, "records": b"", **more}
    return PartitionData(partition_index=0, error_code=code, **fields)


class Registry:
    """Which brokers are alive, and with which epoch: None is dead."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {1: 101, 2: 102, 3: 103}

    def __call__(self, broker_id: int) -> int | None:
        return self.epochs.get(broker_id)


def append(partition: Partition, records: int) -> None:
    for _ in range(records):
        builder = BatchBuilder()
        builder.append(b"k", b"v", timestamp_ms=1)
        append_as_leader(partition.log, builder.build(), leader_epoch=partition.leader_epoch, now_ms=1, origin="client")


def lead(partition: Partition, records: int, **state: Any) -> None:
    partition.become_leader(state_of(**state), 0)
    append(partition, records)


def fetched(partition: Partition, replica: int, offset: int, now_ms: float, epoch: int | None = None) -> bool:
    partition.record_fetch(replica, offset, 0, 100 + replica if epoch is None else epoch, now_ms)
    return partition.advance_high_watermark(now_ms)


def answer(
    code: ErrorCode = ErrorCode.NONE, *, isr: tuple[int, ...] = (), epoch: int = 5, partition_epoch: int = 8
) -> PartitionDataResult:
    return PartitionDataResult(
        partition_index=0,
        error_code=code,
        leader_id=1,
        leader_epoch=epoch,
        isr=list(isr),
        partition_epoch=partition_epoch,
    )
