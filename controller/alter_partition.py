"""AlterPartition: which ISR a leader may have (KIP-497, and KIP-903 made to work with ZooKeeper, D5).

The rules are checked per partition in Kafka's order, against the same state that the conditional write is based on.
Of the epochs in a version 3 request each must be that of the broker's present registration: an ISR that a leader
computed from fetches of a broker's previous life is refused, however late it arrives. -1 means unknown and is
accepted.

Ours: a leader that leaves itself out resigns, because its disk has failed (Kafka answers INVALID_REQUEST, and would be
told by a znode). Another one is elected, of the others that are in sync, in the write that drops it. And a leader that
is about to append a topic's first stamped batch says so here (`stamps`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anabranch.controller import effects, partitions, stamped_topics
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
    """Write what may be written; the answer follows from the outcome."""
    request = event.request
    broker = state.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return [
            effects.SendReply(event.token, AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH, topics=[]))
        ]
    writes: list[PartitionWrite] = []
    refusals: dict[TopicPartition, int] = {}
    asked: list[tuple[bytes, str, tuple[TopicPartition, ...]]] = []
    for topic in request.topics:
        name = topic_name(state, topic)
        named = tuple(TopicPartition(name, row.partition_index) for row in topic.partitions)
        asked.append((topic.topic_id, name or topic.topic_name, named))
        for partition, row in zip(named, topic.partitions, strict=True):
            try:
                write = decide(state, partition, row, by_id=topic.topic_id != ZERO_UUID, asker=broker.id)
            except KafkaError as refused:
                refusals[partition] = refused.code
                continue
            if write is not None:
                writes.append(write)
    change = IsrChange(event.token, refusals, tuple(asked))
    first = [topic_name(state, topic) for topic in request.topics if topic.stamped]
    return [*stamped_topics.write(state, first), effects.WritePartitions(tuple(writes), "isr", then=change)]


def topic_name(state: ClusterState, topic: TopicData) -> str:
    """The topic a row is about; an unknown id has no name."""
    return state.names.get(topic.topic_id, "") if topic.topic_id != ZERO_UUID else topic.topic_name


def decide(
    state: ClusterState, partition: TopicPartition, row: PartitionData, *, by_id: bool, asker: int
) -> PartitionWrite | None:
    """The write that a row asks for, None if it is committed already. Raises KafkaError."""
    if by_id and partition.topic not in state.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    committed = state.partitions.get(partition)
    if committed is None or partition.topic in state.deleting:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    current = committed.state
    isr = tuple(member.broker_id for member in row.new_isr_with_epochs) or tuple(row.new_isr)
    if row.partition_epoch > committed.epoch or row.leader_epoch > current.leader_epoch:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)  # the leader knows more than I do: I must have been replaced
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
    if asker == current.leader and set(isr) == set(current.isr) - {asker}:
        write = partitions.remove_from_isr(state, partition, asker)
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
    """Whether every member is alive, not about to stop, and in the life in which the leader saw it (KIP-903)."""
    if not set(isr) <= state.live:
        return False
    return all(member.broker_epoch in (-1, state.brokers[member.broker_id].epoch) for member in row.new_isr_with_epochs)


def written(
    state: ClusterState,
    change: IsrChange,
    done: Mapping[TopicPartition, Partition],
    lost: Mapping[TopicPartition, Partition | None],
) -> list[Effect]:
    """Tell all brokers about all partitions of the request, then answer with what is committed."""
    resigned = {one: now for one, now in done.items() if has_new_epoch(state, one, now)}
    others = {one: now for one, now in done.items() if one not in resigned}
    effects_of_write = partitions.after_write(state, others, is_new=False, led_anew=False)
    effects_of_write += partitions.after_write(state, resigned, is_new=False)
    batch = RequestBatch(state)
    for _, _, named in change.asked:
        for partition in named:
            if partition in state.partitions and partition not in done:
                batch.add_metadata(partition)
    codes = {**change.refusals, **dict.fromkeys(lost, int(ErrorCode.INVALID_UPDATE_VERSION))}
    topics = [
        TopicDataResult(
            topic_name=name,
            topic_id=topic_id,
            partitions=[_row(state, partition, codes.get(partition, int(ErrorCode.NONE))) for partition in named],
            stamped=stamped_topics.stands(state, name, topic_id),
        )
        for topic_id, name, named in change.asked
    ]
    answer = AlterPartitionResponse(error_code=ErrorCode.NONE, topics=topics)
    return [*effects_of_write, *batch.flush(), effects.SendReply(change.token, answer)]


def has_new_epoch(state: ClusterState, partition: TopicPartition, written: Partition) -> bool:
    """Whether this write, which is not believed yet, begins a leader epoch."""
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
