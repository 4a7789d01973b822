"""The control plane of a front, over HTTP: the same requests and refusals as that of a cluster in one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.request import urlopen

import pytest

from anabranch.control.client import ControlClient
from anabranch.control.control_error import ControlError
from anabranch.control.endpoint import Address, ControlEndpoint
from anabranch.control.front.front_routes import FRONT_ROUTES, HANDLERS, REFUSED
from anabranch.control.front.process_actions import NO_LINKS
from anabranch.control.openapi import document, operation_id
from anabranch.control.routes import ROUTES
from tests.anabranch.control.front.fronts import OnAgents, on_agents


@dataclass
class Served:
    """A front with its HTTP server."""

    on: OnAgents
    client: ControlClient
    url: str

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        """One request, made in a thread, as of another process."""
        return await asyncio.to_thread(self.client.ask, method, path, body)

    async def refusal(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        with pytest.raises(ControlError) as refused:
            await self.ask(method, path, body)
        return refused.value.status, str(refused.value)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    endpoint = ControlEndpoint(Address("127.0.0.1", 0), "")
    async with on_agents(journal=100) as on, endpoint.serve(on.front, lambda: FRONT_ROUTES), asyncio.timeout(60):
        yield Served(on, ControlClient(endpoint.url), endpoint.url)


async def test_topics_and_records_as_in_a_cluster_in_one_process(served: Served) -> None:
    made = await served.ask("POST", "/v1/topics", {"topic": "t", "partitions": 2, "replicas": 2})
    assert [one["leader"] > 0 for one in made["partitions"]] == [True, True]
    (stored,) = await served.ask("POST", "/v1/topics/t/records", {"records": [{"key": "a", "value": "b"}]})
    found = await served.ask("GET", f"/v1/topics/t/records?partition={stored['partition']}")
    assert [(one["key"], one["value"], one["offset"]) for one in found["records"]] == [("a", "b", 0)]
    assert (await served.ask("GET", "/v1/topics/t/plan?partitions=4"))["after"] == 4
    assert len((await served.ask("POST", "/v1/topics/t/partitions", {"partitions": 4}))["partitions"]) == 4
    assert [one["topic"] for one in await served.ask("GET", "/v1/topics")] == ["t"]
    assert (await served.ask("GET", "/v1/topics/t"))["generation"] == 1
    assert await served.ask("GET", "/v1/wait?topic=t&partitions=4") == {"newest": served.on.front.events.newest}
    assert (await served.ask("GET", "/v1/topics/t/configs"))[0]["name"]
    await served.ask("DELETE", "/v1/topics/t")
    for method, path in (("GET", "/v1/topics/t"), ("GET", "/v1/topics/t/plan?partitions=2")):
        assert await served.refusal(method, path) == (404, "there is no topic t")


async def test_actions_return_the_node_and_are_events(served: Served) -> None:
    for what, name in (("kill", "kill"), ("stop", "stop"), ("freeze", "freeze"), ("session/expire", "expire_session")):
        assert (await served.ask("POST", f"/v1/nodes/2/{what}"))["node"] == 2
        assert served.on.actions.done[-1] == (name, 2)
    for what in ("start", "thaw"):
        assert (await served.ask("POST", f"/v1/nodes/2/{what}"))["node"] == 2
        assert served.on.actions.done[-1] == (what, 2)
    assert [one["node"] for one in await served.ask("GET", "/v1/nodes")] == [1, 2]
    assert await served.refusal("POST", "/v1/nodes/x/kill") == (404, "there is no node 'x'")


async def test_rules_have_the_responses_and_refusals_of_a_cluster_in_one_process(served: Served) -> None:
    added = await served.ask("POST", "/v1/faults", {"api": "Metadata", "delay_ms": 1, "times": 1})
    assert (added["name"], added["hits"]) == ("rule-1", 0)
    await served.ask("POST", "/v1/topics", {"topic": "t"})
    assert (await served.ask("GET", "/v1/faults/rule-1/wait?hits=1"))["spent"]
    status, reason = await served.refusal("GET", "/v1/faults/rule-1/wait?hits=2&timeout=0.1")
    assert status == 408 and reason == "rule rule-1 has hit 1 of 1 matching requests, and can hit no more"
    assert await served.refusal("GET", "/v1/faults/rule-1/wait?hits=x") == (400, "hits is a number, not 'x'")
    assert await served.refusal("POST", "/v1/faults", {"api": "Metdata", "delay_ms": 1}) == (
        400,
        "unknown API 'Metdata'; did you mean Metadata?",
    )
    assert (await served.ask("POST", "/v1/faults/rule-1/release"))["name"] == "rule-1"
    assert [one["name"] for one in await served.ask("GET", "/v1/faults")] == ["rule-1"]
    assert (await served.ask("DELETE", "/v1/faults/rule-1"))["removed"]
    assert await served.ask("DELETE", "/v1/faults") == {}
    assert len(await served.ask("GET", "/v1/faults?removed=true")) == 1
    assert (await served.refusal("GET", "/v1/faults/rule-1"))[0] == 404


async def test_dashboard_is_served_with_rows_of_now_and_of_the_past(served: Served) -> None:
    now = await served.ask("GET", "/v1/watch")
    assert {now["rows"][f"node/{one}"]["state"] for one in (1, 2)} == {"alive"}
    await served.ask("POST", "/v1/topics", {"topic": "t"})
    assert "topic/t" in (await served.ask("GET", "/v1/watch"))["rows"]
    assert "topic/t" not in (await served.ask("GET", f"/v1/history?at={now['at']}"))["rows"]
    page = await asyncio.to_thread(lambda: urlopen(f"{served.url}/").read())
    assert b"Anabranch" in page


async def test_event_that_has_just_happened_is_in_the_response(served: Served) -> None:
    served.on.front.publish("node killed", node=1)
    assert (await served.ask("GET", "/v1/events"))[-1]["kind"] == "node killed"


@pytest.mark.parametrize(
    ("method", "path", "reason"),
    [
        ("POST", "/v1/state/forks", "a cluster of processes has its ports and directories"),
        ("GET", "/v1/clock", "processes have the time of their machine"),
    ],
)
async def test_what_processes_cannot_do_is_refused_with_the_reason(
    served: Served, method: str, path: str, reason: str
) -> None:
    status, text = await served.refusal(method, path)
    assert status == 409 and text.startswith(reason)
    capabilities = await served.ask("GET", "/v1/capabilities")
    name = f"{method} {path.replace('/1/', '/{node}/')}"
    (row,) = [one for one in capabilities["requests"] if one["name"] == name]
    assert (row["possible"], row["reason"]) == (False, text)


async def test_front_without_links_to_zookeeper_says_that_it_cannot_suspend(served: Served) -> None:
    paths = {f"POST /v1/nodes/{{node}}/session/{what}" for what in ("suspend", "delay", "resume")}
    possible = {*paths, "node=suspend"}
    for expected in (True, False):
        served.on.actions.can_suspend = expected
        found = await served.ask("GET", "/v1/capabilities")
        rows = {one["name"]: one for one in (*found["requests"], *found["rules"]) if one["name"] in possible}
        assert {name: rows[name]["possible"] for name in possible} == dict.fromkeys(possible, expected)
        assert all(one["reason"] == ("" if expected else NO_LINKS) for one in rows.values())
    rule = {"api": "Produce", "node": "suspend"}
    assert (await served.refusal("POST", "/v1/faults", rule)) == (400, NO_LINKS)


def test_every_route_of_a_cluster_is_served_or_refused() -> None:
    assert [(one.method, one.path) for one in FRONT_ROUTES] == [(one.method, one.path) for one in ROUTES]
    assert [operation_id(one) for one in FRONT_ROUTES] == [operation_id(one) for one in ROUTES]
    assert all(any(one.path.startswith(begin) for one in ROUTES) for begin in REFUSED)
    served = {one.handler for one in FRONT_ROUTES}
    assert {one for one in HANDLERS.values() if one not in served} == set(), "each handler answers a route"
    assert len(document(FRONT_ROUTES, "1")["paths"]) == len(document(ROUTES, "1")["paths"])
