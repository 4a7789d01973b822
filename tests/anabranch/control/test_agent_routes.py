"""An agent serves a part of a cluster's routes, and names the front for the others."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import aiohttp
import pytest

from anabranch.clients.connection import Connection
from anabranch.control.agent_routes import AGENT_ROUTES
from anabranch.control.control_error import ControlError
from anabranch.control.openapi import document
from anabranch.control.routes import ROUTES
from anabranch.faults.rule import Rule
from anabranch.protocol.apis.list_groups import ListGroupsRequest
from anabranch.protocol.errors import ErrorCode
from tests.anabranch.control.agents import RunningAgent, running_agent
from tests.broker.serving import until


async def list_groups(on: RunningAgent) -> int:
    connection = await Connection.open("127.0.0.1", on.node.port, client_id="test")
    try:
        return int((await connection.call(ListGroupsRequest())).error_code)
    finally:
        await connection.close()


def test_every_route_of_a_cluster_is_served_or_refused() -> None:
    found = [(one.method, one.path) for one in AGENT_ROUTES]
    assert len(found) == len(set(found))
    assert {(one.method, one.path) for one in ROUTES} <= set(found)
    paths = document(AGENT_ROUTES, "1")["paths"]
    assert paths["/v1/nodes/{node}/kill"]["post"]["summary"].startswith("Refused by an agent")
    for path in ("/v1/faults", "/v1/events", "/v1/journal", "/v1/state", "/v1/topics/{topic}", "/v1/groups"):
        assert "Refused" not in paths[path]["get"]["summary"]
    assert paths["/v1/agent"]["get"]["responses"]["200"]
    assert "server-sent events" in paths["/v1/agent/decisions"]["get"]["description"]


async def test_refused_request_says_where_it_is_possible() -> None:
    async with running_agent() as on:
        for method, path, says in (
            ("POST", "/v1/nodes/1/kill", "anabranch control serve"),
            ("POST", "/v1/topics", "use any Kafka client"),
            ("POST", "/v1/clock", "the time of its machine"),
            ("POST", "/v1/state/reset", "cannot stop its node"),
            ("GET", "/v1/wait?topic=t", "anabranch up --processes --control"),
            ("GET", "/v1/tour", "serves one node, not a cluster"),
        ):
            with pytest.raises(ControlError, match=says) as refused:
                await on.ask(method, path, {} if method == "POST" else None)
            assert refused.value.status == 409, path


async def test_capabilities_name_refused_requests_and_rules_with_reasons() -> None:
    async with running_agent() as on:
        found = await on.ask("GET", "/v1/capabilities")
    requests = {one["name"]: one for one in found["requests"]}
    assert requests["POST /v1/faults"] == {"name": "POST /v1/faults", "possible": True, "reason": ""}
    assert not requests["POST /v1/nodes/{node}/kill"]["possible"]
    assert "front" in requests["POST /v1/nodes/{node}/kill"]["reason"]
    rules = {one["name"]: one["possible"] for one in found["rules"]}
    assert rules["requests"] and rules["step"] and rules["disk"] and rules["node=kill"]
    assert not rules["node=expire"] and not rules["on"]


class Front:
    """A front that decides on requests of an agent."""

    def __init__(self, on: RunningAgent, session: aiohttp.ClientSession, name: str = "a") -> None:
        self.on = on
        self.session = session
        self.name = name

    async def lease(self) -> Any:
        return await self.on.ask("POST", "/v1/agent/lease", {"front": self.name})

    async def add(self, **rule: Any) -> Any:
        return await self.on.ask("POST", f"/v1/faults?front={self.name}&decided_by=front", rule)

    async def questions(self) -> AsyncGenerator[tuple[str, Any], None]:
        path, headers = f"{self.on.url}/v1/agent/decisions?front={self.name}", {"Accept": "text/event-stream"}
        async with self.session.get(path, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            while True:
                kind, data = (await answer.content.readuntil(b"\n\n")).decode().splitlines()[:2]
                yield kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))

    async def decide(self, question: int, **decision: bool) -> Any:
        return await self.on.ask("POST", f"/v1/agent/decisions/{question}?front={self.name}", decision)


@contextlib.asynccontextmanager
async def fronts(*names: str, lease_s: float = 60.0) -> AsyncIterator[list[Front]]:
    async with running_agent(lease_s=lease_s) as on, aiohttp.ClientSession() as session, asyncio.timeout(60):
        yield [Front(on, session, name) for name in names]


async def test_front_decides_which_requests_its_rule_hits() -> None:
    async with fronts("a") as (front,):
        on = front.on
        assert await front.lease() == {"front": "a", "seconds": 60.0, "rules": [], "newest": on.agent.events.newest}
        async with contextlib.aclosing(front.questions()) as questions:
            assert await anext(questions) == ("ready", {"node": 1})
            await front.add(name="twice", api="ListGroups", error="COORDINATOR_NOT_AVAILABLE", times=1)
            for hit, code in ((False, 0), (True, ErrorCode.COORDINATOR_NOT_AVAILABLE)):
                asking = asyncio.ensure_future(list_groups(on))
                kind, question = await anext(questions)
                assert (kind, question["rule"], question["api"]) == ("decision", "twice", "ListGroups")
                assert await on.ask("GET", "/v1/agent/decisions?front=a") == [question]
                await front.decide(question["id"], hit=hit, spent=hit)
                assert await asking == code
            assert await list_groups(on) == 0, "the rule is spent"
        (row,) = await on.ask("GET", "/v1/faults")
        assert (row["met"], row["hits"], row["spent"]) == (2, 1, True)
        with pytest.raises(ControlError, match="question 2 is not open"):
            await front.decide(2, hit=True)


async def test_rule_of_a_front_that_follows_no_questions_hits_nothing_and_an_event_says_so() -> None:
    async with fronts("a") as (front,):
        await front.lease()
        await front.add(name="r", api="ListGroups", error="COORDINATOR_NOT_AVAILABLE")
        assert [await list_groups(front.on), await list_groups(front.on)] == [0, 0]
        events = [one for one in await front.on.ask("GET", "/v1/events") if one["kind"] == "fault not decided"]
        assert [(one["rule"], one["reason"]) for one in events] == [("r", "no front is connected")]


async def test_front_that_has_closed_its_stream_is_asked_no_more() -> None:
    async with fronts("a") as (front,):
        await front.lease()
        async with contextlib.aclosing(front.questions()) as questions:
            await anext(questions)
            assert front.on.agent.decisions.has_front
        await until(lambda: not front.on.agent.decisions.has_front)  # the server notices the closed connection
        await front.add(name="r", api="ListGroups", error="COORDINATOR_NOT_AVAILABLE")
        assert await list_groups(front.on) == 0
        (event,) = [one for one in await front.on.ask("GET", "/v1/events") if one["kind"] == "fault not decided"]
        assert event["reason"] == "no front is connected"


async def test_second_front_is_refused_and_told_the_first() -> None:
    async with fronts("a", "b") as (first, second):
        await first.lease()
        for asking in (
            second.lease(),
            second.add(api="Produce", delay_ms=1),
            anext(second.questions()),
            second.on.ask("DELETE", "/v1/agent/lease?front=b"),
            second.on.ask("GET", "/v1/agent/decisions?front=b"),
        ):
            with pytest.raises((ControlError, AssertionError), match="front a controls this node"):
                await asking
        assert (await first.on.ask("GET", "/v1/agent"))["front"] == "a"


@pytest.mark.parametrize("query", ["", "?front=b"])
async def test_rules_are_changed_only_by_the_front_that_holds_the_lease(query: str) -> None:
    async with fronts("a") as (front,):
        on, rule = front.on, {"name": "other", "api": "Produce", "delay_ms": 1}
        await front.lease()
        await front.add(name="mine", api="Produce", delay_ms=1)
        for method, path, body in (
            ("POST", "/v1/faults", rule),
            ("DELETE", "/v1/faults", None),
            ("DELETE", "/v1/faults/mine", None),
            ("POST", "/v1/faults/mine/release", None),
            ("POST", "/v1/agent/decisions/1", {"hit": True}),
        ):
            with pytest.raises(ControlError, match="front a controls this node"):
                await on.ask(method, path + query, body)
        assert [one["name"] for one in await on.ask("GET", "/v1/faults")] == ["mine"]
        await on.ask("DELETE", "/v1/agent/lease?front=a")
        await on.ask("POST", "/v1/faults", rule)
        await on.ask("DELETE", "/v1/faults")
        assert await on.ask("GET", "/v1/faults") == []


async def test_rules_of_a_front_end_with_its_lease_and_others_stay() -> None:
    async with fronts("a", "b") as (first, second):
        on = first.on
        await on.ask("POST", "/v1/faults", {"name": "direct", "api": "Produce", "delay_ms": 1})
        await first.lease()
        await first.add(name="mine", api="Produce", delay_ms=1)
        await first.add(name="removed", api="Produce", delay_ms=1)
        await on.ask("DELETE", "/v1/faults/removed?front=a")
        assert (await first.lease())["rules"] == ["mine"]
        assert await on.ask("DELETE", "/v1/agent/lease?front=a") == {}
        assert [one["name"] for one in await on.ask("GET", "/v1/faults")] == ["direct"]
        ended = (await on.ask("GET", "/v1/events"))[-1]
        assert (ended["kind"], ended["front"], ended["rules"]) == ("lease ended", "a", ["mine"])
        assert (await second.lease())["rules"] == []


async def test_lease_that_is_not_renewed_expires_with_an_event() -> None:
    async with fronts("a", lease_s=0.05) as (front,):
        expired = asyncio.Event()
        front.on.agent.events.on_event(lambda event: expired.set() if event.kind == "lease expired" else None)
        front.on.agent.renew_lease("a")
        front.on.agent.add_rule(Rule(name="r", api=("Produce",), delay_ms=(1.0,)), "a")
        front.on.agent.renew_lease("a")
        await expired.wait()
        assert len(front.on.agent.faults) == 0
        assert (await front.on.ask("GET", "/v1/agent"))["front"] == ""


async def test_next_front_gets_an_expired_lease_without_the_rules_of_the_last_one() -> None:
    """The loop may be too busy for the timer of the lease."""
    async with fronts("a", lease_s=60) as (front,):
        agent = front.on.agent
        agent.renew_lease("a")
        agent.add_rule(Rule(name="r", api=("Produce",), delay_ms=(1.0,)), "a")
        agent._lease.ends_s = 0.0
        agent.renew_lease("b")
        assert len(agent.faults) == 0 and agent.row()["front"] == "b"


@pytest.mark.parametrize(
    ("method", "path", "body", "says"),
    [
        ("POST", "/v1/agent/lease", {}, "front is the name of the front"),
        ("POST", "/v1/agent/lease", {"front": ""}, "front is a name of 1 to 100"),
        ("POST", "/v1/agent/lease", {"front": 7}, "front is a string"),
        ("GET", "/v1/agent/decisions", None, "front is a name of 1 to 100"),
        ("POST", "/v1/agent/decisions/x", {"hit": True}, "a decision on a question"),
        ("POST", "/v1/agent/decisions/1", {}, "a decision on a question"),
        ("POST", "/v1/agent/decisions/1", {"hit": True}, "question 1 is not open"),
        ("POST", "/v1/faults?decided_by=front", {"api": "Produce", "delay_ms": 1}, "decided_by=front needs front"),
        ("POST", "/v1/faults?decided_by=me", {"api": "Produce", "delay_ms": 1}, "decided_by is front, not 'me'"),
        ("POST", "/v1/faults?front=a", {"api": "Produce", "delay_ms": 1}, "no front controls this node"),
    ],
)
async def test_invalid_request_of_a_front_is_refused(method: str, path: str, body: Any, says: str) -> None:
    async with running_agent() as on:
        with pytest.raises(ControlError, match=says):
            await on.ask(method, path, body)


async def test_action_on_another_node_is_the_fronts_and_has_no_effect_here(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    monkeypatch.setattr("anabranch.control.agent_actions.os.kill", lambda pid, number: sent.append(number))
    async with fronts("a") as (front,):
        await front.lease()
        async with contextlib.aclosing(front.questions()) as questions:
            await anext(questions)
            await front.add(name="r", api="ListGroups", node="kill", on=2)
            asking = asyncio.ensure_future(list_groups(front.on))
            await front.decide((await anext(questions))[1]["id"], hit=True)
            assert await asking == 0
        assert not sent and front.on.agent.faults.get("r").hits == 1
