"""Brokers with group coordinators: real TCP, handlers, logs and replication; the controller is scripted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from anabranch.broker.coordinators.groups.group_coordinator import GroupCoordinator
from anabranch.clients.connection import Connection
from anabranch.clients.group_offsets import position_request
from anabranch.controller.zk.memory import MemoryZooKeeper
from anabranch.protocol.apis.consumer_group_position import ConsumerGroupPositionRequest
from anabranch.protocol.apis.heartbeat import HeartbeatRequest
from anabranch.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from anabranch.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from anabranch.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from anabranch.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from anabranch.protocol.apis.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.internal_topics import CONSUMER_OFFSETS_TOPIC
from anabranch.protocol.topic_partition import TopicPartition
from tests.broker.coordinators.steady_clock import SteadyCluster
from tests.broker.replication.replica_cluster import Assigned, until

TOPIC = "t"
FOR_EVER_MS = 600_000
"""Longer than any test: who waits so long is woken by something else."""


class GroupWorld(SteadyCluster):
    """A replica cluster whose brokers coordinate groups; `__consumer_offsets` has one partition."""

    def groups(self, broker_id: int) -> GroupCoordinator:
        return self.brokers[broker_id].services.groups

    async def coordinate(self, leader: int, *, isr: tuple[int, ...] | None = None) -> None:
        """Make a broker the coordinator of all groups, and wait until it has loaded them."""
        await self.lead(leader, replicas=tuple(sorted(self.settings_replicas)), isr=isr, topic=CONSUMER_OFFSETS_TOPIC)
        await until(lambda: not self.groups(leader).loading)

    @property
    def settings_replicas(self) -> set[int]:
        known = self.assigned.get((CONSUMER_OFFSETS_TOPIC, 0))
        return set(self.brokers) if known is None else set(known.replicas)

    async def create_topic(self, partitions: int = 4, topic: str = TOPIC) -> None:
        """Add the topic to all brokers' metadata, without records."""
        for index in range(partitions):
            self.assigned[topic, index] = Assigned(tuple(self.brokers), min(self.brokers), 0, tuple(self.brokers))
        await self.publish()

    def delete_topic(self, topic: str, broker_id: int = 1, partitions: int = 1) -> None:
        """Remove a topic from a broker's metadata."""
        metadata = self.brokers[broker_id].services.metadata
        rows = [
            UpdateMetadataPartitionState(
                partition_index=index, controller_epoch=1, leader=-2, leader_epoch=1, isr=[], zk_version=1, replicas=[]
            )
            for index in range(partitions)
        ]
        gone = UpdateMetadataTopicState(topic_name=topic, topic_id=metadata.topic_id(topic), partition_states=rows)
        metadata.apply(
            UpdateMetadataRequest(
                controller_id=9, controller_epoch=1, topic_states=[gone], live_brokers=self.live_brokers()
            )
        )


@asynccontextmanager
async def group_world(brokers: int = 1, **settings: Any) -> AsyncIterator[GroupWorld]:
    """Fresh brokers, for a minute at most; the first one coordinates."""
    session = await MemoryZooKeeper().connect()
    patient = {
        "offsets_topic_num_partitions": 1,
        "group_initial_rebalance_delay_ms": 0,
        "offsets_commit_timeout_ms": 60_000,
    }
    world = GroupWorld(session, patient | settings)
    try:
        for broker_id in range(1, brokers + 1):
            await world.start(broker_id)
        await world.create_topic()
        await world.coordinate(1)
        async with asyncio.timeout(60):
            yield world
    finally:
        for broker_id in list(world.brokers):
            await world.kill(broker_id)
        await session.close()


# --- requests ----------------------------------------------------------------------------------------------------


def join_request(member_id: str = "", *, instance_id: str | None = None, session_ms: int = 10_000) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"topics")],
    )


def sync_request(member_id: str, generation: int, assignments: dict[str, bytes] | None = None) -> SyncGroupRequest:
    rows = [SyncGroupRequestAssignment(member_id=one, assignment=given) for one, given in (assignments or {}).items()]
    return SyncGroupRequest(
        group_id="g",
        generation_id=generation,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=rows,
    )


def heartbeat_request(member_id: str, generation: int) -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id)


def commit_request(
    offsets: dict[int, int],
    *,
    member: tuple[str, int] = ("", -1),
    group: str = "g",
    topic: str = TOPIC,
    metadata: str | None = "m",
) -> OffsetCommitRequest:
    rows = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_leader_epoch=3, committed_metadata=metadata
        )
        for index, offset in offsets.items()
    ]
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=member[1],
        member_id=member[0],
        topics=[OffsetCommitRequestTopic(name=topic, partitions=rows)],
    )


def commit_errors(response: Any) -> list[ErrorCode]:
    return [ErrorCode(row.error_code) for topic in response.topics for row in topic.partitions]


def fetch_offsets_request(
    version: int, partitions: list[int] | None, group: str = "g", *, stable: bool = False
) -> OffsetFetchRequest:
    """The same question in the layout of any version."""
    if version >= 8:
        topics = None if partitions is None else [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=partitions)]
        return OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=stable
        )
    old = None if partitions is None else [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=partitions)]
    return OffsetFetchRequest(group_id=group, topics=old, require_stable=stable)


def offsets_in(response: Any, version: int) -> dict[int, int]:
    topics = response.groups[0].topics if version >= 8 else response.topics
    return {row.partition_index: row.committed_offset for topic in topics for row in topic.partitions}


def watch_request(
    awaited: dict[int, int], *, member: tuple[str, int] = ("", -1), max_wait_ms: int = FOR_EVER_MS
) -> ConsumerGroupPositionRequest:
    places = {TopicPartition(TOPIC, index): offset for index, offset in awaited.items()}
    return position_request("g", places, generation=member[1], member_id=member[0], max_wait_ms=max_wait_ms)


def positions_in(response: Any) -> dict[int, int]:
    return {row.partition: row.position for topic in response.topics for row in topic.partitions}


async def join_alone(connection: Connection, version: int | None = None) -> tuple[str, int]:
    """One dynamic member of a Stable group: (member id, generation)."""
    response = await connection.call(join_request(), version=version)
    if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        response = await connection.call(join_request(response.member_id), version=version)
    assert response.error_code == 0, ErrorCode(response.error_code)
    member_id: str = response.member_id
    generation: int = response.generation_id
    synced = await connection.call(sync_request(member_id, generation, {member_id: b"mine"}))
    assert (synced.error_code, bytes(synced.assignment)) == (0, b"mine")
    return member_id, generation
