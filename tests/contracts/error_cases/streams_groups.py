"""Refusals of streams group members (KIP-1071)."""

from __future__ import annotations

from typing import Any

from anabranch.protocol.apis.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Topology
from anabranch.protocol.errors import ErrorCode
from tests.broker.coordinators.streams_groups.world import subtopology
from tests.contracts.error_cases.groups import coordinator
from tests.contracts.error_codes import World, case


async def join(world: World, *parts: Any) -> Any:
    group = world.fresh()
    request = StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        member_epoch=0,
        endpoint_information_epoch=-1,
        rebalance_timeout_ms=1000,
        topology=Topology(epoch=0, subtopologies=list(parts)),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )
    return await world.call(request, at=await coordinator(world, group))


@case(ErrorCode.STREAMS_INVALID_TOPOLOGY, kafka_version="4.2")
async def topology_without_source_topics(world: World) -> Any:
    """StreamsGroupHeartbeat that joins with a subtopology without any source."""
    return await join(world, subtopology("0"))
