"""Requests of classic members, in every version, and before their group is loaded."""

from __future__ import annotations

import pytest

from anabranch.protocol.apis.leave_group import LeaveGroupRequest, MemberIdentity
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.internal_topics import CONSUMER_OFFSETS_TOPIC
from tests.broker.coordinators.world import group_world, heartbeat_request, join_alone, join_request, sync_request
from tests.broker.replication.replica_cluster import until


async def test_membership_requests_work_in_every_version() -> None:
    async with group_world() as world:
        connection = await world[1].connect()
        for version in range(10):
            member_id, generation = await join_alone(connection, version)
            leave_version = min(version, 5)
            for beat in range(5):
                said = await connection.call(heartbeat_request(member_id, generation), version=beat)
                assert said.error_code == 0
            for sync in range(6):
                said = await connection.call(sync_request(member_id, generation), version=sync)
                assert (said.error_code, bytes(said.assignment)) == (0, b"mine")
            leave = LeaveGroupRequest(group_id="g", member_id=member_id, members=[MemberIdentity(member_id=member_id)])
            left = await connection.call(leave, version=leave_version)
            assert left.error_code == 0
            assert [row.error_code for row in left.members] == ([0] if leave_version >= 3 else [])
        refused = await connection.call(heartbeat_request("who", 1))
        assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        await connection.close()


async def test_requests_during_loading_are_refused() -> None:
    """Before the load, all requests must wait. Kafka would confirm heartbeats."""
    async with group_world() as world:
        groups = world.groups(1)
        groups.table.leadership.on_resign(CONSUMER_OFFSETS_TOPIC, 0)
        groups.on_leader(CONSUMER_OFFSETS_TOPIC, 0, 9)
        assert groups.loading
        with pytest.raises(KafkaError) as refused:
            groups.offsets.of("g")
        assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        # None of these waits before it answers, so the load cannot run in between.
        heartbeat = await groups.classic.heartbeat(heartbeat_request("m", 1))
        assert heartbeat.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await groups.classic.sync(sync_request("m", 1))).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        joined = await groups.classic.join(join_request(), version=9, client_id="c", client_host="/h")
        assert joined.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await until(lambda: not groups.loading)
        assert not groups.offsets.of("g")


@pytest.mark.parametrize("instance_id", [None, "till-1"])
async def test_join_at_another_broker_than_the_coordinator_is_refused(instance_id: str | None) -> None:
    async with group_world(2) as world:
        connection = await world[2].connect()
        refused = await connection.call(join_request(instance_id=instance_id))
        assert refused.error_code == ErrorCode.NOT_COORDINATOR
        await connection.close()
