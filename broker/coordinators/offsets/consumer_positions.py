"""ConsumerGroupPosition: members exchange positions, or wait for committed offsets (KIP-253 7, R9, K104, K605).

v0 is the KIP's exchange: members report positions, and the coordinator stores them and returns the partitions that
other members want to know. A stored position is dropped with the member and generation that reported it, because only a
committed position outlives its member's crash (K605).

v1 uses *committed* offsets: a `Watch` waits until one of its awaited partitions is committed far enough, until its
timeout, or until a rebalance. The commit itself completes it, without polling. A watch that awaits no partition
notifies its member of a rebalance at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Final

from anabranch.broker.coordinators.classic_groups.group_events import Answer, Ticket
from anabranch.broker.coordinators.offsets.committed_offsets import TopicPartition
from anabranch.protocol.apis.consumer_group_position import (
    ConsumerGroupPositionRequest,
    ConsumerGroupPositionResponse,
    ConsumerGroupPositionResponsePartition,
    ConsumerGroupPositionResponseTopic,
)
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.values import slotted

UNKNOWN: Final = -1
OffsetOf = Callable[[TopicPartition], int]


@slotted(kw_only=True)
class Watch:
    """A waiting request of v1."""

    ticket: Ticket
    request: ConsumerGroupPositionRequest
    awaited: dict[TopicPartition, int]
    deadline_ms: int


@slotted
class Positions:
    """The stored positions and waiting requests of one group."""

    generation: int = -1
    remembered: dict[TopicPartition, tuple[str, int]] = field(default_factory=dict)
    """Partition -> (member that reported last, its position), all of `generation`."""
    requested: dict[str, frozenset[TopicPartition]] = field(default_factory=dict)
    """Member -> the partitions that it requested last."""
    watches: list[Watch] = field(default_factory=list)

    def exchange(self, request: ConsumerGroupPositionRequest) -> ConsumerGroupPositionResponse:
        """Handle v0: store reported positions, return the requested ones, and request those that other members want.

        The format has no "unknown"; it is sent as -1, which no position satisfies.
        """
        if request.generation_id != self.generation:
            self.generation = request.generation_id
            self.remembered.clear()
            self.requested.clear()
        mine: list[TopicPartition] = []
        for topic in request.topics:
            for one in topic.partitions:
                if one.need_position:
                    mine.append((topic.topic, one.partition))
                else:
                    self.remembered[topic.topic, one.partition] = (request.member_id, one.position)
        self.requested[request.member_id] = frozenset(mine)
        others = {
            partition
            for member, partitions in self.requested.items()
            if member != request.member_id
            for partition in partitions
        }
        rows = {partition: partition in others for partition in [*mine, *sorted(others)]}
        return _response(
            (partition, requested, self.remembered.get(partition, ("", UNKNOWN))[1])
            for partition, requested in rows.items()
        )

    def forget(self, member_ids: Iterable[str]) -> None:
        """Drop the positions and requests of members that have left."""
        gone = set(member_ids)
        self.requested = {member: requested for member, requested in self.requested.items() if member not in gone}
        self.remembered = {one: reported for one, reported in self.remembered.items() if reported[0] not in gone}

    def members(self) -> set[str]:
        """Return the ids of members with stored positions or requests."""
        return set(self.requested) | {member for member, _ in self.remembered.values()}

    def watch(
        self, ticket: Ticket, request: ConsumerGroupPositionRequest, offset_of: OffsetOf, now_ms: int
    ) -> list[Answer]:
        """Handle v1: answer at once if an offset is reached or the client does not wait, else store a watch."""
        awaited = {
            (topic.topic, one.partition): one.awaited_offset
            for topic in request.topics
            for one in topic.partitions
            if one.need_position and one.awaited_offset >= 0
        }
        watch = Watch(ticket=ticket, request=request, awaited=awaited, deadline_ms=now_ms + request.max_wait_ms)
        if request.max_wait_ms <= 0 or _is_reached(watch, awaited, offset_of):
            return [_progress(watch, offset_of)]
        self.watches.append(watch)
        return []

    def on_offsets_committed(self, partitions: Iterable[TopicPartition], offset_of: OffsetOf) -> list[Answer]:
        """Complete the watches that awaited one of these newly committed offsets."""
        if not self.watches:
            return []
        changed = dict.fromkeys(partitions)
        return self._finish(
            lambda watch: _is_reached(watch, changed, offset_of), lambda watch: _progress(watch, offset_of)
        )

    def expire(self, offset_of: OffsetOf, now_ms: int) -> list[Answer]:
        """Answer the watches whose timeout has passed."""
        return self._finish(lambda watch: watch.deadline_ms <= now_ms, lambda watch: _progress(watch, offset_of))

    def interrupt(self, error: ErrorCode) -> list[Answer]:
        """Answer all watches with an error, because the assignment is no longer in force."""
        return self._finish(lambda watch: True, lambda watch: Answer(watch.ticket, refusal(error)))

    def drop(self, ticket: Ticket) -> None:
        """Remove the watch of a disconnected client."""
        self.watches = [watch for watch in self.watches if watch.ticket is not ticket]

    def next_deadline(self) -> int | None:
        """Return the earliest deadline of a watch."""
        return min((watch.deadline_ms for watch in self.watches), default=None)

    def _finish(self, ready: Callable[[Watch], bool], answer: Callable[[Watch], Answer]) -> list[Answer]:
        if not self.watches:
            return []
        finished = [watch for watch in self.watches if ready(watch)]
        if finished:
            self.watches = [watch for watch in self.watches if watch not in finished]
        return [answer(watch) for watch in finished]


def refusal(error: ErrorCode) -> ConsumerGroupPositionResponse:
    """Return an error response without positions."""
    return ConsumerGroupPositionResponse(topics=[], error_code=error)


def _is_reached(watch: Watch, partitions: Mapping[TopicPartition, object], offset_of: OffsetOf) -> bool:
    awaited = watch.awaited
    fewer, more = (partitions, awaited) if len(partitions) < len(awaited) else (awaited, partitions)
    return any(partition in more and offset_of(partition) >= awaited[partition] for partition in fewer)


def _progress(watch: Watch, offset_of: OffsetOf) -> Answer:
    partitions = (
        (topic.topic, one.partition) for topic in watch.request.topics for one in topic.partitions if one.need_position
    )
    return Answer(watch.ticket, _response((partition, False, offset_of(partition)) for partition in partitions))


def _response(rows: Iterable[tuple[TopicPartition, bool, int]]) -> ConsumerGroupPositionResponse:
    topics: dict[str, list[ConsumerGroupPositionResponsePartition]] = {}
    for (topic, index), need_position, position in rows:
        topics.setdefault(topic, []).append(
            ConsumerGroupPositionResponsePartition(partition=index, need_position=need_position, position=position)
        )
    return ConsumerGroupPositionResponse(
        topics=[ConsumerGroupPositionResponseTopic(topic=name, partitions=rows) for name, rows in topics.items()],
        error_code=ErrorCode.NONE,
    )
