"""Client metrics of all nodes are joined: a client may push to one broker after another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anabranch.clients.connection import Connection
from anabranch.control.actions import ActionRefused, UnknownNode
from anabranch.control.front import front_routes, front_telemetry
from anabranch.control.route import ControlRequest, WaitTimedOut
from anabranch.control.telemetry import TelemetryRow
from tests.anabranch.control.front.fronts import OnAgents, on_agents
from tests.broker.telemetry.pushing import get, push_of

ACCEPTED: Any = {"kafka": "4.1", "client_telemetry_enable": "true"}


@asynccontextmanager
async def client_of(on: OnAgents, node_id: int, client_id: str = "shop") -> AsyncIterator[Connection]:
    port = on.agents[node_id].node.port
    connection = await Connection.open("127.0.0.1", port, client_id=client_id, software_name="rdkafka")
    try:
        yield connection
    finally:
        await connection.close()


async def ask(on: OnAgents, name: str, client: str = "shop", **query: str) -> Any:
    request = ControlRequest(words={"client": client}, query=query, body={})
    return await getattr(front_telemetry, name)(on.front, request)


async def test_pushes_to_two_nodes_are_one_row_with_the_newest_push() -> None:
    async with on_agents(2, **ACCEPTED) as on, asyncio.timeout(60):
        assert await ask(on, "get_telemetry") == []
        for name in ("get_pushed_metrics", "get_otlp"):
            with pytest.raises(UnknownNode, match="no client 'shop' has requested a subscription"):
                await ask(on, name)
        async with client_of(on, 2) as client:
            told = await get(client)
            with pytest.raises(UnknownNode, match="shop has not pushed yet"):
                await ask(on, "get_otlp")
            await client.call(push_of(told, b"first"))
            (row,) = await ask(on, "wait_for_pushes", pushes="1")
            assert (row["node"], row["pushes"], row["last"]["bytes"]) == (2, 1, 5)
        async with client_of(on, 1) as client:
            told = await get(client, told.client_instance_id)
            await client.call(push_of(told, b"second", terminating=True))
            (row,) = await ask(on, "wait_for_pushes", pushes="2", terminated="true")
            assert (row["node"], row["pushes"], row["last"]["bytes"]) == (1, 2, 6)
            assert row["wanted"] is not None
            assert row.keys() == TelemetryRow.__annotations__.keys()
        assert await ask(on, "get_otlp", row["instance"]) == b"second"
        (shown,) = await ask(on, "get_pushed_metrics")
        assert shown["unread"] and shown["pushes"] == 2
        with pytest.raises(WaitTimedOut, match="shop has pushed 2 of 3 times"):
            await ask(on, "wait_for_pushes", pushes="3", timeout="0")
        with pytest.raises(ValueError, match="pushes is a number, not 'x'"):
            await ask(on, "wait_for_pushes", pushes="x")


async def test_client_id_with_characters_of_urls_is_found() -> None:
    client_id = "shop/1?a#b %41"
    async with on_agents(1, **ACCEPTED) as on, asyncio.timeout(60), client_of(on, 1, client_id) as client:
        await client.call(push_of(await get(client), b"first"))
        (shown,) = await ask(on, "get_pushed_metrics", client_id)
        assert (shown["client"], shown["pushes"]) == (client_id, 1)
        assert await ask(on, "get_otlp", client_id) == b"first"


async def test_cluster_without_client_metrics_is_refused_with_remedy() -> None:
    async with on_agents(1) as on, asyncio.timeout(60):
        with pytest.raises(
            ActionRefused, match=r"no broker accepts client metrics; start the cluster with --kafka 4\.1"
        ):
            await ask(on, "get_telemetry")
        refused = {row.path: front_routes.reason_against(row) for row in front_routes.FRONT_ROUTES}
        assert not refused["/v1/telemetry/{client}"]
