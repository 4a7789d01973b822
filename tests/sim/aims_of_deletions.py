"""Aims at records that are deleted while readers lag; see `aims`."""

from __future__ import annotations

import asyncio
from typing import Any

from anabranch.protocol.internal_topics import CONSUMER_OFFSETS_TOPIC
from tests.sim import administration
from tests.sim.aims import aim, calm
from tests.sim.aims_of_disks import within
from tests.sim.clients import TOPIC
from tests.sim.loop import Process


@aim(
    "records are deleted beyond a closed gate, and their partition gets another leader",
    {
        "copiers": 0,
        "readers": 2,
        "keys": 8,
        "spares": 1,
        "fault_s": 5.0,
        "pace_s": 0.2,
        "slow": 0.0,
        "write_pause_s": 0.05,
        "strategies": (("range",),),
    },
    resizing=True,
)
async def deleted_behind_a_gate(schedule: Any) -> bool:
    """Topic 1 -> 2 -> 1: the owner of 0 waits for that of 1, which cannot fetch. Then 0 loses what is waited for."""
    cluster = schedule.cluster
    await stop_resizing(schedule)
    await resize(schedule, 1)
    if not await within(schedule, 8, lambda: calm(cluster) and owners(schedule).keys() == {0}):
        return False
    await resize(schedule, 2)
    if not await within(schedule, 6, lambda: len({id(one) for one in owners(schedule).values()}) == 2):
        return False
    slow, leader = owners(schedule)[1], cluster.leader(TOPIC, 1)
    if not await within(schedule, 3, lambda: position_of(slow, 1) >= 0):
        return False
    if leader == cluster.leader(CONSUMER_OFFSETS_TOPIC, 0):
        cluster.expire_session(leader)  # next time the coordinator is elsewhere: members have to hear from it
        return False
    if leader <= 0:
        return False
    host = cluster.machines[leader].host
    cluster.partition([host], [slow.host])
    try:
        await asyncio.sleep(0.5)  # records come that it cannot fetch
        await resize(schedule, 1)
        return await within(schedule, 6, lambda: waits_behind(schedule, 0, slow)) and await _delete_and_elect(schedule)
    finally:
        for link in ((host, slow.host), (slow.host, host)):
            cluster.network.heal(*link)


async def _delete_and_elect(schedule: Any) -> bool:
    cluster, leader = schedule.cluster, schedule.cluster.leader(TOPIC, 0)
    row = row_of(owners(schedule)[0], 0)
    before = schedule.rng.randint(row.position + 1, row.fetch_offset)
    if leader <= 0 or not await administration.delete_unread(cluster, (TOPIC, 0), before, within_s=2):
        return False
    cluster.tell(f"kill node {leader}, which leads {TOPIC}-0")
    cluster.crash(leader)
    cluster.expire_session(leader)
    elected = await within(schedule, 3, lambda: cluster.leader(TOPIC, 0) not in (-1, leader))
    cluster.boot(leader)
    return elected


async def stop_resizing(schedule: Any) -> None:
    """Let the operator of the schedule finish what it has begun, and begin nothing more."""
    resizer = schedule.operators[0]
    resizer.steps.clear()
    while resizer.task is not None and not resizer.task.done():
        await asyncio.sleep(0.05)


async def resize(schedule: Any, count: int) -> None:
    """Resize the topic, if it has another count."""
    if dict(schedule.cluster.topics())[TOPIC].undeleted_partition_count != count:
        resizer = schedule.operators[0]
        await schedule.cluster.loop.spawn(Process("operator of the story"), resizer._resize(count))


def owners(schedule: Any) -> dict[int, Any]:
    """Partition -> the reader that has it."""
    found = {}
    for reader in schedule.readers:
        if reader.alive and reader.consumer is not None and reader.consumer._started:
            found.update({one.partition: reader for one in reader.consumer.assignment()})
    return found


def row_of(reader: Any, index: int) -> Any:
    """How far a reader is in a partition; None if it has it not."""
    rows = reader.consumer._core.assignment
    return next((one for one in rows if one.partition.partition == index), None)


def position_of(reader: Any, index: int) -> int:
    """The next record that a reader hands out; -1 if it has no position."""
    row = row_of(reader, index)
    return -1 if row is None else int(row.position)


def waits_behind(schedule: Any, index: int, other: Any) -> bool:
    """Whether a member other than `other` has fetched records behind a closed gate."""
    reader = owners(schedule).get(index)
    if reader is None or reader is other:
        return False
    row = row_of(reader, index)
    closed = reader.consumer._core.deliveries._is_closed(row)
    return bool(closed and row.position < row.fetch_offset and row.committed == row.position)
