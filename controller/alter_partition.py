"""Decides the ISR changes that leaders request with AlterPartition (KIP-497, and KIP-903 over ZooKeeper, D5).

Each partition is checked in Kafka's order, against the state on which the conditional write is based. Every broker
epoch in a version 3 request must be that of the broker's current registration. So an ISR computed from fetches of an
earlier registration is refused, however late it arrives. -1 means unknown and is accepted.

Differences from Kafka: a leader that leaves itself out of the ISR resigns, because its disk has failed (Kafka answers
INVALID_REQUEST, and learns of the failure by a znode). The write that drops it elects another in-sync replica. A leader
also reports here that it is about to append a topic's first batch with a generation (`has_generations`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anabranch.controller import effects, partitions, topics_with_generations
from anabranch.controller.effects import Effect, PartitionWrite
from anabranch.controller.events import AlterPartitionRequested
from anabranch.controller.follow_ups import IsrChange
from anabranch.controller.model import Partition, TopicPartition
from anabranch.controller.requests import RequestBatch
from anabranch.controller.state import ClusterState
from anabranch.protocol.apis.alter_partition import (
    AlterPartitionResponse,
    PartitionData,
    PartitionDataResult,
    TopicData,
    TopicDataResult,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.wire import ZERO_UUID

RECOVERING = 1


def ask(state: ClusterState, event: AlterPartitionRequested) -> list[Effect]:
    """Write the changes that are allowed; the response follows from the outcome."""
    request = event.request
    broker = state.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return [
            effects.SendReply(event.token, AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH, topics=[]))
        ]
    writes: list[PartitionWrite] = []
    refusals: dict[TopicPartition, int] = {}
    requested: list[tuple[bytes, str, tuple[TopicPartition, ...]]] = []
    for topic in request.topics:
        name = topic_name(state, topic)
        named = tuple(TopicPartition(name, row.partition_index) for row in topic.partitions)
        requested.append((topic.topic_id, name or topic.topic_name, named))
        for partition, row in zip(named, topic.partitions, strict=True):
            try:
                write = decide(state, partition, row, by_id=topic.topic_id != ZERO_UUID, requester=broker.id)
            except KafkaError as refused:
                refusals[partition] = refused.code
                continue
            if write is not None:
                writes.append(write)
    change = IsrChange(event.token, refusals, tuple(requested))
    first = [topic_name(state, topic) for topic in request.topics if topic.has_generations]
    return [*topics_with_generations.write(state, first), effects.WritePartitions(tuple(writes), "isr", then=change)]


def topic_name(state: ClusterState, topic: TopicData) -> str:
    """Return the topic's name; empty for an unknown id."""
    return state.names.get(topic.topic_id, "") if topic.topic_id != ZERO_UUID else topic.topic_name


def decide(
    state: ClusterState, partition: TopicPartition, row: PartitionData, *, by_id: bool, requester: int
) -> PartitionWrite | None:
    """Return the write for a row, None if it is committed already. Raises KafkaError."""
    if by_id and partition.topic not in state.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    committed = state.partitions.get(partition)
    if committed is None or partition.topic in state.deleting:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    current = committed.state
    isr = tuple(member.broker_id for member in row.new_isr_with_epochs) or tuple(row.new_isr)
    if row.partition_epoch > committed.epoch or row.leader_epoch > current.leader_epoch:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)  # the leader has a newer epoch: this controller was replaced
    if row.leader_epoch < current.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    if isr == current.isr and row.leader_recovery_state == current.leader_recovery_state:
        return None
    if row.partition_epoch < committed.epoch:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)
    became_recovering = row.leader_recovery_state == RECOVERING != current.leader_recovery_state
    if not isr or became_recovering or (row.leader_recovery_state == RECOVERING and len(isr) > 1):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if not eligible(state, isr, row):
        raise KafkaError(ErrorCode.INELIGIBLE_REPLICA if by_id else ErrorCode.OPERATION_NOT_ATTEMPTED)
    if requester == current.leader and set(isr) == set(current.isr) - {requester}:
        write = partitions.remove_from_isr(state, partition, requester)
        if write is None:
            raise KafkaError(ErrorCode.INELIGIBLE_REPLICA if by_id else ErrorCode.OPERATION_NOT_ATTEMPTED)
        return write
    if current.leader not in isr or not set(isr) <= set(state.assignment(partition)):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    after = replace(
        current,
        isr=isr,
        leader_recovery_state=row.leader_recovery_state,
        controller_epoch=state.controller_epoch,
    )
    return PartitionWrite(partition, after, committed.epoch)


def eligible(state: ClusterState, isr: tuple[int, ...], row: PartitionData) -> bool:
    """Whether all members are alive, not shutting down, and registered with the leader's broker epochs (KIP-903)."""
    if not set(isr) <= state.live:
        return False
    return all(member.broker_epoch in (-1, state.brokers[member.broker_id].epoch) for member in row.new_isr_with_epochs)


def on_written(
    state: ClusterState,
    change: IsrChange,
    done: Mapping[TopicPartition, Partition],
    lost: Mapping[TopicPartition, Partition | None],
) -> list[Effect]:
    """Send the request's partitions to all brokers, then respond with the committed state."""
    resigned = {one: now for one, now in done.items() if has_new_epoch(state, one, now)}
    others = {one: now for one, now in done.items() if one not in resigned}
    effects_of_write = partitions.after_write(state, others, is_new=False, led_anew=False)
    effects_of_write += partitions.after_write(state, resigned, is_new=False)
    batch = RequestBatch(state)
    for _, _, named in change.requested:
        for partition in named:
            if partition in state.partitions and partition not in done:
                batch.add_metadata(partition)
    codes = {**change.refusals, **dict.fromkeys(lost, int(ErrorCode.INVALID_UPDATE_VERSION))}
    topics = [
        TopicDataResult(
            topic_name=name,
            topic_id=topic_id,
            partitions=[_row(state, partition, codes.get(partition, int(ErrorCode.NONE))) for partition in named],
            has_generations=topics_with_generations.is_marked(state, name, topic_id),
        )
        for topic_id, name, named in change.requested
    ]
    answer = AlterPartitionResponse(error_code=ErrorCode.NONE, topics=topics)
    return [*effects_of_write, *batch.flush(), effects.SendReply(change.token, answer)]


def has_new_epoch(state: ClusterState, partition: TopicPartition, written: Partition) -> bool:
    """Whether this write, not yet adopted as state, has a new leader epoch."""
    known = state.partitions.get(partition)
    return known is not None and written.state.leader_epoch > known.state.leader_epoch


def _row(state: ClusterState, partition: TopicPartition, code: int) -> PartitionDataResult:
    committed = state.partitions.get(partition)
    if code != ErrorCode.NONE or committed is None:
        return PartitionDataResult(
            partition_index=partition.partition,
            error_code=code,
            leader_id=-1,
            leader_epoch=-1,
            isr=[],
            partition_epoch=-1,
        )
    return PartitionDataResult(
        partition_index=partition.partition,
        error_code=ErrorCode.NONE,
        leader_id=committed.state.leader,
        leader_epoch=committed.state.leader_epoch,
        isr=list(committed.state.isr),
        leader_recovery_state=committed.state.leader_recovery_state,
        partition_epoch=committed.epoch,
    )
