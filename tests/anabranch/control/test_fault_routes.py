"""Each route of the rules works, and refuses invalid requests with a reason."""

from __future__ import annotations

import asyncio
import json

import pytest

from anabranch.control.actions import UnknownNode
from anabranch.control.routes import WaitTimedOut
from anabranch.faults.rule_json import InvalidRule
from tests.anabranch.control.conftest import controlled
from tests.anabranch.control.test_routes import ask
from tests.anabranch.faults.test_faults import connected, groups


async def test_rules_are_added_hit_and_removed() -> None:
    async with controlled(brokers=1) as on, connected(on.cluster) as connection, asyncio.timeout(60):
        said = {"name": "no", "api": "ListGroups", "error": "COORDINATOR_NOT_AVAILABLE", "times": 1}
        row = await ask(on, "add_fault", body=said)
        assert row == {
            "name": "no",
            "rule": {**said, "api": ["ListGroups"]},
            "met": 0,
            "hits": 0,
            "held": 0,
            "spent": False,
            "removed": False,
        }
        json.dumps(row)
        assert await groups(connection) == 15 and await groups(connection) == 0
        assert (await ask(on, "wait_for_hits", rule="no"))["hits"] == 1
        assert (await ask(on, "get_fault", rule="no"))["spent"]
        with pytest.raises(WaitTimedOut, match="rule no has hit 1 of 1 matching requests, and can hit no more"):
            await ask(on, "wait_for_hits", rule="no", query={"hits": "2", "timeout": "0"})
        told = [one for one in await ask(on, "get_events") if one["kind"] == "fault"]
        assert [(one["rule"], one["node"], one["api"], one["client"], one["hits"]) for one in told] == [
            ("no", 1, "ListGroups", "app", 1)
        ]
        assert [one["name"] for one in await ask(on, "get_faults")] == ["no"]
        assert (await ask(on, "remove_fault", rule="no"))["hits"] == 1
        assert await ask(on, "get_faults") == []


async def test_held_request_is_released() -> None:
    async with controlled(brokers=1) as on, connected(on.cluster) as connection, asyncio.timeout(60):
        await ask(on, "add_fault", body={"name": "gate", "api": "ListGroups", "hold": True})
        asking = asyncio.create_task(groups(connection))
        assert (await ask(on, "wait_for_hits", rule="gate"))["hits"] == 1
        assert not asking.done()
        await ask(on, "release_fault", rule="gate")
        assert await asking == 0
        assert await ask(on, "remove_faults") == {} and len(on.faults) == 0


async def test_invalid_rules_and_waits_are_refused() -> None:
    async with controlled(brokers=1) as on:
        with pytest.raises(InvalidRule, match="unknown API 'Produced'; did you mean Produce"):
            await ask(on, "add_fault", body={"api": "Produced", "hold": True})
        with pytest.raises(UnknownNode, match="there is no rule x; there are none"):
            await ask(on, "get_fault", rule="x")
        await ask(on, "add_fault", body={"name": "gate", "hold": True})
        with pytest.raises(UnknownNode, match="there is no rule x; there are gate"):
            await ask(on, "remove_fault", rule="x")
        with pytest.raises(ValueError, match="hits is a number, not 'two'"):
            await ask(on, "wait_for_hits", rule="gate", query={"hits": "two"})


async def test_first_hits_of_a_busy_rule_are_events() -> None:
    async with controlled(brokers=1) as on, connected(on.cluster) as connection, asyncio.timeout(60):
        await ask(on, "add_fault", body={"api": "ListGroups", "throttle_ms": 1})
        for _ in range(103):
            await groups(connection)
        assert sum(one.kind == "fault" for one in on.events.after(0)) == 100
