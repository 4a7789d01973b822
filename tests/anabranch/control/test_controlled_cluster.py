"""A rule's hit is one event, and one entry of the journal if there is one."""

from __future__ import annotations

import asyncio
import dataclasses

from anabranch.journal.journal import Journal
from tests.anabranch.control.conftest import controlled
from tests.anabranch.faults.test_faults import connected, groups


async def test_each_hit_is_published_once() -> None:
    async with controlled(brokers=1) as alone, asyncio.timeout(60):
        journal = Journal(10, alone.cluster.node_ids)
        alone.cluster.on_node(journal.watch)
        on = dataclasses.replace(alone, journal=journal)
        assert on.faults is on.faults is alone.faults
        on.faults.add(api="ListGroups", throttle_ms=1, name="slow")
        async with connected(on.cluster) as connection:
            await groups(connection)
        assert [one.rules for one in journal.entries(api="ListGroups")] == [["slow"]]
        assert sum(one.kind == "fault" for one in on.events.after(0)) == 1
