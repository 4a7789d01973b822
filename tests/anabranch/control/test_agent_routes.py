"""An agent serves a part of a cluster's routes, and names the front for the others."""

from __future__ import annotations

import pytest

from anabranch.control.agent_routes import AGENT_ROUTES
from anabranch.control.control_error import ControlError
from anabranch.control.openapi import document
from anabranch.control.routes import ROUTES
from tests.anabranch.control.agents import running_agent


def test_every_route_of_a_cluster_is_served_or_refused() -> None:
    found = [(one.method, one.path) for one in AGENT_ROUTES]
    assert len(found) == len(set(found))
    assert {(one.method, one.path) for one in ROUTES} <= set(found)
    paths = document(AGENT_ROUTES, "1")["paths"]
    assert paths["/v1/nodes/{node}/kill"]["post"]["summary"].startswith("Refused by an agent")
    for path in ("/v1/faults", "/v1/events", "/v1/journal", "/v1/state", "/v1/topics/{topic}", "/v1/groups"):
        assert "Refused" not in paths[path]["get"]["summary"]
    assert paths["/v1/agent"]["get"]["responses"]["200"]


async def test_refused_request_says_where_it_is_possible() -> None:
    async with running_agent() as on:
        for method, path, says in (
            ("POST", "/v1/nodes/1/kill", "anabranch control serve"),
            ("POST", "/v1/topics", "use any Kafka client"),
            ("POST", "/v1/clock", "the time of its machine"),
            ("POST", "/v1/state/reset", "cannot stop its node"),
            ("GET", "/v1/wait?topic=t", "anabranch up --processes --control"),
            ("GET", "/v1/watch", "serves one node, not a cluster"),
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
