"""Aims at requests that let others run between two of their steps; see `aims`, and `small_steps` for all such work."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final
from unittest import mock

from anabranch.broker.handlers import offset_commit
from tests.sim.aims import aim
from tests.sim.aims_of_disks import within
from tests.sim.clients import GROUP, TOPIC
from tests.sim.fitting import check_fit

ALONE: Final = {"copiers": 0, "readers": 1, "keys": 8, "fault_s": 6.0, "pace_s": 0.2, "write_pause_s": 0.03}


class Held:
    """The first commit of the group that is encoded from now on: it goes on once `released` is set."""

    def __init__(self) -> None:
        self.offsets: dict[tuple[str, int], int] = {}
        self.released = asyncio.Event()
        self.encode = offset_commit.encode

    async def take(
        self, journal: Any, group_id: str, values: Mapping[Any, Any], turns: Any, producer: Any = None
    ) -> Any:
        """Encode a commit; the first one takes long."""
        records = await self.encode(journal, group_id, values, turns, producer)
        offsets = {(topic, index): one.offset for (topic, index), one in values.items() if topic == TOPIC}
        if group_id == GROUP and offsets and not self.offsets:
            self.offsets = offsets
            await self.released.wait()
        return records


@aim("a connection is lost while a commit on it is encoded", {**ALONE, "commit_intervals_ms": (200,)})
async def commit_outlives_its_connection(schedule: Any) -> bool:
    """The member commits newer offsets on another connection, and ends; the next one begins after them."""
    cluster, reader, held = schedule.cluster, schedule.rng.choice(schedule.readers), Held()
    process, commits = reader.process, cluster.history.commits

    def committed_more() -> bool:
        rows = [row.offsets for row in commits if row.acked_order > known]
        return any(at < offsets.get(place, -1) for offsets in rows for place, at in held.offsets.items())

    check_fit("encode", offset_commit.encode, held.take)
    with mock.patch.object(offset_commit, "encode", held.take):
        await within(schedule, 3, lambda: held.offsets)
        known = cluster.history.tick()
        cluster.tell(f"{reader.identity} loses its connections while {held.offsets} are encoded")
        cluster.network.reset_some(reader.host, 1.0)
        came_about = bool(held.offsets) and await within(schedule, 3, committed_more) and reader.process is process
        if reader.alive:
            reader.kill()
        held.released.set()
        await asyncio.sleep(0.2)
    reader.start()
    await within(schedule, 4, lambda: reader.consumer is not None and bool(reader.consumer.assignment()))
    return came_about
