"""The closed gates of a group for `Admin`: waiting partitions, the key epochs they wait for, and the records behind.

A consumer evaluates its own gates (`clients.consumer.gate`). This module evaluates the same gates from the same three
sources: lineage and leader epochs from metadata, key epoch ends from leaders, committed offsets from the group's
coordinator. It changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from anabranch.clients.consumer.gate import PartitionView, TopicGate
from anabranch.clients.group_admin import Group, Member
from anabranch.clients.metadata import NO_LEADER, Topic
from anabranch.clients.network import Network
from anabranch.protocol.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from anabranch.protocol.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.lineage import KeyEpoch
from anabranch.protocol.order_gates import UNKNOWN
from anabranch.protocol.records.batch import read_header
from anabranch.protocol.topic_partition import TopicPartition

NO_PROGRESS = -1


@dataclass(frozen=True, slots=True)
class Blocker:
    """An unfinished key epoch of an older generation: one reason why a gate is closed."""

    partition: TopicPartition
    end: int
    """The offset that the group has to commit at least."""
    committed: int
    """The committed offset; -1: none."""
    owner: Member | None

    @property
    def remaining(self) -> int:
        """The remaining offsets to read and commit: at most that many records."""
        return self.end - max(self.committed, 0)


@dataclass(frozen=True, slots=True)
class ClosedGate:
    """A partition behind a closed gate."""

    partition: TopicPartition
    generation: int
    offset: int
    """The first offset behind the gate."""
    waiting_since_ms: int
    """The time of the first record behind the gate; -1 if there is none."""
    owner: Member | None
    blockers: tuple[Blocker, ...]


async def key_epoch_ends(network: Network, topic: Topic) -> dict[KeyEpoch, int]:
    """Return key epoch -> its end as its current leader reports it (R7), for each key epoch that a resize has cut.

    Key epochs of partitions removed meanwhile are left out.
    """

    async def end_of(key_epoch: KeyEpoch, cut: int) -> int | None:
        partition = TopicPartition(topic.name, key_epoch.partition)

        async def once() -> int | None:
            known = network.metadata.partition(*partition)
            if known is None:
                return None  # drained and removed since the topic was described
            leader = network.metadata.leader(*partition)
            if leader == NO_LEADER:
                await network.refresh()
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, str(partition))
            row = OffsetForLeaderPartition(
                partition=key_epoch.partition, current_leader_epoch=known.leader_epoch, leader_epoch=cut - 1
            )
            request = OffsetForLeaderEpochRequest(
                replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic.name, partitions=[row])]
            )
            response: OffsetForLeaderEpochResponse = await network.call(leader, request)
            answer = response.topics[0].partitions[0]
            code = ErrorCode(answer.error_code)
            if code != ErrorCode.NONE or answer.end_offset == UNKNOWN:
                await network.refresh()
                raise KafkaError(code or ErrorCode.OFFSET_NOT_AVAILABLE, f"the end of {topic.name}-{key_epoch}")
            return answer.end_offset

        return await network.retry(once)

    gate = gate_of(topic)
    found = {key_epoch: await end_of(key_epoch, cut) for key_epoch, cut in _cuts(gate, topic.partitions)}
    return {key_epoch: end for key_epoch, end in found.items() if end is not None}


def gate_of(topic: Topic) -> TopicGate:
    """Return the gate of an ordered topic. Raises ValueError for a topic that is not ordered."""
    if topic.lineage is None:
        raise ValueError(f"{topic.name} has enable.ordered.delivery=false: it has no gates")
    views = {index: PartitionView(one.leader_epoch, one.gen_start) for index, one in topic.partitions.items()}
    return TopicGate(topic.lineage, views)


def closed_gates(
    topic: Topic, ends: Mapping[KeyEpoch, int], committed: Mapping[TopicPartition, int], group: Group | None
) -> list[ClosedGate]:
    """Return a topic's closed gates for a group with these commits.

    Pure: `waiting_since_ms` of the result is -1, because it needs a record's time.
    """
    gate = gate_of(topic)
    for key_epoch, end in ends.items():
        gate.note_end(key_epoch, end, leader_epoch=topic.partitions[key_epoch.partition].leader_epoch)
    for index in topic.partitions:
        offset = committed.get(TopicPartition(topic.name, index), NO_PROGRESS)
        if offset != NO_PROGRESS:
            gate.note_committed(index, offset)
    closed = []
    for index in sorted(topic.partitions):
        partition = TopicPartition(topic.name, index)
        position = max(committed.get(partition, NO_PROGRESS), 0)
        found = _first_closed(gate, index, position, ends)
        if found is not None:
            key_epoch, offset = found
            blockers = tuple(
                Blocker(home, wait.end, wait.committed, None if group is None else group.owner(home))
                for wait in gate.waits(key_epoch)
                for home in [TopicPartition(topic.name, wait.key_epoch.partition)]
            )
            owner = None if group is None else group.owner(partition)
            closed.append(ClosedGate(partition, key_epoch.generation, offset, -1, owner, blockers))
    return closed


async def first_timestamp_ms(network: Network, partition: TopicPartition, offset: int) -> int:
    """Return the time of the first batch at or after an offset; -1 if there is none."""

    async def once() -> bytes:
        leader = await network.leader_of(partition)
        known = network.metadata.topics.get(partition.topic)
        requested = FetchPartition(
            partition=partition.partition, fetch_offset=offset, log_start_offset=-1, partition_max_bytes=1
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            topics=[
                FetchTopic(
                    topic=partition.topic, topic_id=known.topic_id if known is not None else b"", partitions=[requested]
                )
            ],
        )
        response: FetchResponse = await network.call(leader, request)
        rows = [row for one in response.responses for row in one.partitions]
        code = ErrorCode(rows[0].error_code if rows else response.error_code)
        if code != ErrorCode.NONE:
            raise KafkaError(code, str(partition))
        return bytes(rows[0].records or b"")

    records = await network.retry(once)
    return read_header(records).base_timestamp if records else -1


def _cuts(gate: TopicGate, partitions: Collection[int]) -> Iterable[tuple[KeyEpoch, int]]:
    for index in sorted(partitions):
        for key_epoch in gate.boundaries(index):
            cut = gate.cut(key_epoch)
            if cut is not None:
                yield key_epoch, cut


def _first_closed(
    gate: TopicGate, index: int, position: int, ends: Mapping[KeyEpoch, int]
) -> tuple[KeyEpoch, int] | None:
    """Return the first closed key epoch at or after a position, and the offset where reading stops."""
    begin = 0
    for key_epoch in gate.lineage.key_epochs(index):
        end = ends.get(key_epoch)
        if (end is None or position < end or (begin == end and position <= end)) and not gate.is_open(key_epoch):
            return key_epoch, max(begin, position)
        begin = end if end is not None else begin
    return None
