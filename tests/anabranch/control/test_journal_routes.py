"""Each route of the journal works, and refuses invalid requests with a reason."""

from __future__ import annotations

import asyncio
import dataclasses
import json

import pytest

from anabranch.control.actions import ActionRefused
from anabranch.control.routes import WaitTimedOut
from anabranch.journal.journal import Journal
from tests.anabranch.control.conftest import controlled
from tests.anabranch.control.test_routes import ask
from tests.anabranch.faults.test_faults import connected, groups


async def test_exchanges_are_queried_awaited_and_cleared() -> None:
    async with controlled(brokers=1) as alone, asyncio.timeout(60):
        journal = Journal(10, alone.cluster.node_ids)
        alone.cluster.on_node(journal.watch)
        on = dataclasses.replace(alone, journal=journal)
        await ask(on, "add_fault", body={"name": "no", "api": "ListGroups", "error": "COORDINATOR_NOT_AVAILABLE"})
        async with connected(on.cluster) as connection:
            await groups(connection)
        rows = await ask(on, "get_journal", query={"api": "ListGroups", "rule": "no"})
        assert [(row["client_id"], row["errors"], row["rules"]) for row in rows] == [
            ("app", ["COORDINATOR_NOT_AVAILABLE"], ["no"])
        ]
        json.dumps(rows)
        assert await ask(on, "wait_for_exchanges", query={"api": "ListGroups", "count": "1"}) == rows
        with pytest.raises(WaitTimedOut, match="after 0 s 1 of 2 such exchanges"):
            await ask(on, "wait_for_exchanges", query={"api": "ListGroups", "count": "2", "timeout": "0"})
        with pytest.raises(ValueError, match="count is a number, not 'x'"):
            await ask(on, "wait_for_exchanges", query={"count": "x"})
        with pytest.raises(ValueError, match="unknown API 'x'"):
            await ask(on, "get_journal", query={"api": "x"})
        assert await ask(on, "clear_journal") == {} and await ask(on, "get_journal") == []


async def test_missing_journal_is_refused_with_remedy() -> None:
    async with controlled(brokers=1) as on:
        with pytest.raises(ActionRefused, match="there is no journal; start the cluster with --control-journal 1000"):
            await ask(on, "get_journal")
