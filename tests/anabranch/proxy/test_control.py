"""A proxy's control plane is that of a cluster where possible, and names alternatives elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import jsonschema
import pytest

from anabranch.control.client import ControlClient, ControlError
from anabranch.control.endpoint import Address, ControlEndpoint
from anabranch.control.openapi import document
from anabranch.control.routes import ROUTES
from anabranch.protocol.apis.metadata import MetadataRequest
from anabranch.proxy.control import PROXY_ROUTES, ControlledProxy
from anabranch.proxy.proxy import Proxy
from tests.anabranch.proxy.stories import proxied
from tests.anabranch.proxy.test_proxy import call


@contextlib.asynccontextmanager
async def controlled(**more: object) -> AsyncIterator[tuple[Proxy, ControlClient]]:
    async with proxied(2, **more) as (_, proxy):
        door = ControlEndpoint(Address("127.0.0.1", 0), "")
        async with door.serve(ControlledProxy(proxy), lambda: PROXY_ROUTES):
            yield proxy, ControlClient(door.url)


async def test_rules_journal_nodes_and_events_are_controlled() -> None:
    async with controlled(journal_size=10) as (proxy, client):

        def from_outside() -> None:
            rule = client.faults.add(api="Metadata", error="LEADER_NOT_AVAILABLE", level="topic", delay_ms=1)
            assert client.faults.rows()[0]["name"] == rule.name
            nodes = client.ask("GET", "/v1/nodes")
            assert [one["node"] for one in nodes] == [1, 2] and all(one["upstream"] for one in nodes)
            row = client.ask("GET", "/v1/openapi.json")["components"]["schemas"]["ProxyNodeRow"]
            jsonschema.validate(nodes, {"type": "array", "items": {**row, "additionalProperties": False}})
            assert b"docs.js" in client.ask("GET", "/docs")

        await asyncio.to_thread(from_outside)
        await call(proxy.bootstrap_servers, MetadataRequest(topics=[]))

        def and_again() -> None:
            assert client.journal.count(api="Metadata") == 1
            assert client.faults.rows()[0]["hits"] == 1
            assert {"broker", "fault"} <= {one["kind"] for one in client.events()}
            with pytest.raises(ControlError, match="cannot kill a broker"):
                client.faults.add(api="Produce", node="kill")

        await asyncio.to_thread(and_again)


@pytest.mark.parametrize(
    ("method", "path", "says"),
    [
        ("POST", "/v1/nodes/1/kill", "cannot stop a broker; a rule with `brokers`"),
        ("POST", "/v1/clock", "rules can delay"),
        ("POST", "/v1/state/reset", "a proxy does not have the state of its cluster"),
        ("GET", "/v1/topics", "ask the cluster, with any Kafka client through this proxy"),
        ("GET", "/v1/wait?topic=t", "wait for a rule's hits"),
        ("GET", "/v1/state", "a proxy does not have the state of its cluster"),
    ],
)
async def test_operation_that_needs_our_cluster_is_refused_with_alternative(method: str, path: str, says: str) -> None:
    async with controlled() as (_, client):
        with pytest.raises(ControlError, match=says) as error:
            await asyncio.to_thread(client.ask, method, path, {"by": "1s"} if method == "POST" else None)
        assert error.value.status == 409


async def test_capabilities_name_what_a_proxy_cannot_do() -> None:
    async with controlled() as (_, client):
        row = await asyncio.to_thread(client.ask, "GET", "/v1/capabilities")
        reasons = {one["name"]: one["reason"] for one in (*row["requests"], *row["rules"])}
        for name in ("GET /v1/capabilities", "GET /v1/nodes", "POST /v1/faults", "GET /v1/journal", "requests"):
            assert reasons[name] == "", name
        assert "a proxy cannot stop a broker" in reasons["POST /v1/nodes/{node}/kill"]
        assert reasons["node=kill"].startswith("a proxy cannot kill a broker of another cluster")
        assert "does not see steps" in reasons["step"]


def test_every_path_is_documented() -> None:
    assert [(one.method, one.path) for one in PROXY_ROUTES] == [(one.method, one.path) for one in ROUTES]
    paths = document(PROXY_ROUTES, "1")["paths"]
    assert paths["/v1/nodes/{node}/kill"]["post"]["summary"].startswith("Refused by a proxy")
    assert "Refused" not in paths["/v1/faults"]["post"]["summary"]
