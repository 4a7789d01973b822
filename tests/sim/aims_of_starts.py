"""Aims at members that look for their start offsets; see `aims`."""

from __future__ import annotations

import asyncio
from typing import Any

from anabranch.protocol.apis.list_offsets import ListOffsetsRequest
from anabranch.protocol.registry import api_of
from tests.sim.aims import aim, calm
from tests.sim.aims_of_deletions import owners, resize, stop_resizing
from tests.sim.aims_of_disks import within
from tests.sim.clients import TOPIC
from tests.sim.ending import committed_offsets


@aim(
    "a member's search for its start outlasts its rebalance timeout",
    {
        "copiers": 0,
        "readers": 3,
        "keys": 60,
        "spares": 1,
        "fault_s": 4.0,
        "pace_s": 0.2,
        "slow": 0.0,
        "flush_s": 0.02,
        "write_pause_s": 0.02,
        "commit_intervals_ms": (50,),
        "rebalance_timeout_ms": 700,
        "strategies": (("range",),),
    },
    resizing=True,
)
async def long_search(schedule: Any) -> bool:
    """The group continues without it, another member reads and commits, and it gets the same partition again."""
    cluster, (_, joining, searching) = schedule.cluster, schedule.readers
    await stop_resizing(schedule)
    if joining.alive:
        joining.kill()
    child = max(row.count for row in cluster.history.resizes.topics if row.topic == TOPIC)  # there was none so far
    try:
        if not await within(schedule, 8, lambda: calm(cluster) and joining not in owners(schedule).values()):
            return False
        links = [(searching.host, one.host) for one in cluster.brokers]
        stalled = [cluster.network.snare(*link, api_of(ListOffsetsRequest).key) for link in links]
        try:
            await resize(schedule, child + 1)
            if not await within(schedule, 3, lambda: any(stalled)):
                return False
            joining.start()
            replaced = await within(
                schedule, 2.2, lambda: is_lost(searching) and committed_offsets(cluster).get((TOPIC, child), 0) > 0
            )
        finally:
            for link in links:
                cluster.network.unsnare(*link)
        cluster.tell(f"{searching.identity} hears where its partitions begin")
        for pipe in (pipe for pipes in stalled for pipe in pipes):
            cluster.network.release(pipe, ends_after_s=5)
        return replaced and await within(schedule, 3, lambda: owners(schedule).get(child) is searching)
    finally:
        joining.start()
        await asyncio.sleep(0.5)


def is_lost(reader: Any) -> bool:
    """Whether a reader has learned that its group removed it."""
    return bool(reader.consumer is not None and reader.consumer._core.membership.lost)
