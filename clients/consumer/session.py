"""The conversation with a group's coordinator: joining, staying in, committing, asking how far the others are.

A shell around `membership`: it sends what the membership asks for, follows the coordinator when it moves, and beats the
heart. It is the only one that talks to the coordinator, over two connections: one for short requests, one for the long
poll of `await_positions`, which would otherwise hold up the commit that it is itself waiting for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from clients.consumer.assignors import TopicView
from clients.consumer.membership import NO_GENERATION, Assigned, Fate, Membership, State, TopicShape
from clients.network import GROUP, POSITIONS, Network
from protocol.apis.consumer_group_position import (
    ConsumerGroupPositionRequest,
    ConsumerGroupPositionRequestPartition,
    ConsumerGroupPositionRequestTopic,
    ConsumerGroupPositionResponse,
)
from protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)

ANSWER_MARGIN_MS = 5000
"""How much longer than the server's own time limit to wait for a parked answer."""


class GroupSession:
    """One member's line to its coordinator."""

    def __init__(
        self,
        network: Network,
        membership: Membership,
        *,
        heartbeat_interval_ms: int,
        rebalance_timeout_ms: int,
        on_lapse: Callable[[], None],
    ) -> None:
        self._network = network
        self.membership = membership
        self._heartbeat_interval_s = heartbeat_interval_ms / 1000
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._on_lapse = on_lapse
        self._heart: asyncio.Task[None] | None = None

    @property
    def stable(self) -> bool:
        """Whether the current assignment still counts."""
        return self.membership.state is State.STABLE

    async def join(self) -> Assigned:
        """Join, or join again, until there is an assignment. KafkaError when the group will not have us."""
        if self._heart is None:
            self._heart = asyncio.create_task(self._beat(), name=f"heartbeat of {self.membership.group_id}")
        while True:
            if await self._join_once() is not Fate.PROCEED:
                continue
            topics = await self._topic_views() if self.membership.is_leader else {}
            response = await self._call(self.membership.sync_request(topics), _top_level, parked=True)
            fate, assigned = self.membership.synced(response)
            if fate is Fate.PROCEED:
                log.info("%s: %d partitions", self.membership.describe(), len(assigned.partitions))
                return replace(assigned, shapes={name: _shape(view) for name, view in topics.items()})

    async def leave(self) -> None:
        """Stop the heart and say goodbye; a coordinator that cannot be reached will notice by itself."""
        if self._heart is not None:
            self._heart.cancel()
            await asyncio.gather(self._heart, return_exceptions=True)
            self._heart = None
        if self.membership.member_id and self.membership.generation != NO_GENERATION:
            try:
                async with asyncio.timeout(2):
                    await self._call(self.membership.leave_request(), _top_level)
            except (ConnectionError, TimeoutError, KafkaError) as error:
                log.info("%s could not say goodbye: %s", self.membership.describe(), error)
        self.membership.lapse(forget_identity=True)

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets (the next ones to read). KafkaError if the group has moved on, or refuses."""
        request = OffsetCommitRequest(
            group_id=self.membership.group_id,
            generation_id_or_member_epoch=self.membership.generation,
            member_id=self.membership.member_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset, committed_metadata=""
                        )
                        for index, offset in rows
                    ],
                )
                for topic, rows in _grouped(offsets).items()
            ],
        )
        response: OffsetCommitResponse = await self._call(request, _first_commit_error)
        for topic in response.topics:
            for row in topic.partitions:
                code = ErrorCode(row.error_code)
                if self._heard(code) is not Fate.PROCEED:
                    raise KafkaError(code, f"commit of {topic.name}-{row.partition_index}")

    async def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The group's committed offsets; -1 where there is none."""
        if not partitions:
            return {}
        by_topic = _grouped(dict.fromkeys(partitions, 0))
        group = self.membership.group_id
        request = OffsetFetchRequest(
            group_id=group,
            topics=[
                OffsetFetchRequestTopic(name=topic, partition_indexes=[index for index, _ in rows])
                for topic, rows in by_topic.items()
            ],
            groups=[
                OffsetFetchRequestGroup(
                    group_id=group,
                    topics=[
                        OffsetFetchRequestTopics(name=topic, partition_indexes=[index for index, _ in rows])
                        for topic, rows in by_topic.items()
                    ],
                )
            ],
            require_stable=True,
        )
        response: OffsetFetchResponse = await self._call(request, _fetch_error)
        topics: Sequence[Any] = response.groups[0].topics if response.groups else response.topics
        found: dict[TopicPartition, int] = {}
        for topic in topics:
            for row in topic.partitions:
                if row.error_code != ErrorCode.NONE:
                    raise KafkaError(ErrorCode(row.error_code), f"offset of {topic.name}-{row.partition_index}")
                found[TopicPartition(topic.name, row.partition_index)] = row.committed_offset
        return found

    async def await_positions(
        self, awaited: Mapping[TopicPartition, int], *, max_wait_ms: int
    ) -> dict[TopicPartition, int]:
        """The group's committed offsets once one of them reaches what is awaited, or when the time is up (R9, F16)."""
        request = ConsumerGroupPositionRequest(
            group_id=self.membership.group_id,
            generation_id=self.membership.generation,
            member_id=self.membership.member_id,
            topics=[
                ConsumerGroupPositionRequestTopic(
                    topic=topic,
                    partitions=[
                        ConsumerGroupPositionRequestPartition(
                            partition=index, need_position=True, position=-1, awaited_offset=offset
                        )
                        for index, offset in rows
                    ],
                )
                for topic, rows in _grouped(awaited).items()
            ],
            max_wait_ms=max_wait_ms,
        )
        response: ConsumerGroupPositionResponse = await self._network.call_coordinator(
            self.membership.group_id,
            request,
            _top_level,
            channel=POSITIONS,
            timeout_ms=max_wait_ms + ANSWER_MARGIN_MS,
        )
        if self._heard(ErrorCode(response.error_code)) is not Fate.PROCEED:
            return {}
        return {
            TopicPartition(topic.topic, row.partition): row.position
            for topic in response.topics
            for row in topic.partitions
            if row.error_code == ErrorCode.NONE
        }

    async def _join_once(self) -> Fate:
        response = await self._call(self.membership.join_request(), _top_level, parked=True)
        return self.membership.joined(response)

    async def _topic_views(self) -> dict[str, TopicView]:
        """The topics of the whole group, as new as can be: the leader decides with these for everybody."""
        wanted = sorted({topic for member in self.membership.members for topic in member.topics})
        self._network.follow(*wanted)
        metadata = await self._network.refresh()
        return {
            name: TopicView(
                name,
                tuple(sorted(topic.partitions)),
                frozenset(index for index, one in topic.partitions.items() if one.marked_for_deletion),
                topic.lineage,
            )
            for name in wanted
            if (topic := metadata.topics.get(name)) is not None
        }

    async def _beat(self) -> None:
        """Heartbeats while stable; a lost coordinator is looked for, a lost membership is reported."""
        while True:
            await asyncio.sleep(self._heartbeat_interval_s)
            if not self.stable:
                continue
            try:
                response = await self._call(self.membership.heartbeat_request(), _top_level)
                self._heard(ErrorCode(response.error_code))
            except (ConnectionError, TimeoutError) as error:
                log.info("%s: no heartbeat: %s", self.membership.describe(), error)
            except KafkaError as error:
                log.warning("%s: heartbeat refused: %s", self.membership.describe(), error)
                self.membership.lapse(forget_identity=True)
                self._on_lapse()

    def _heard(self, code: ErrorCode) -> Fate:
        # An answer that crossed a rebalance already under way says nothing new.
        if not self.stable:
            return Fate.PROCEED if code is ErrorCode.NONE else Fate.REJOIN
        fate = self.membership.heard(code)
        if fate is Fate.REJOIN:
            self._on_lapse()
        return fate

    async def _call(self, request: Any, error_of: Callable[[Any], int], *, parked: bool = False) -> Any:
        return await self._network.call_coordinator(
            self.membership.group_id,
            request,
            error_of,
            channel=GROUP,
            timeout_ms=self._rebalance_timeout_ms + ANSWER_MARGIN_MS if parked else None,
        )


def _shape(view: TopicView) -> TopicShape:
    generation = NO_GENERATION if view.lineage is None else view.lineage.generation
    return TopicShape(generation, frozenset(view.partitions))


def _top_level(response: Any) -> int:
    code: int = response.error_code
    return code


def _first_commit_error(response: OffsetCommitResponse) -> int:
    codes = (row.error_code for topic in response.topics for row in topic.partitions)
    return next((code for code in codes if code != ErrorCode.NONE), ErrorCode.NONE)


def _fetch_error(response: OffsetFetchResponse) -> int:
    return response.groups[0].error_code if response.groups else response.error_code


def _grouped(values: Mapping[TopicPartition, int]) -> dict[str, list[tuple[int, int]]]:
    grouped: dict[str, list[tuple[int, int]]] = {}
    for partition, value in sorted(values.items()):
        grouped.setdefault(partition.topic, []).append((partition.partition, value))
    return grouped
