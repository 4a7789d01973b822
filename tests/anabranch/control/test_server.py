"""Goal: over HTTP, each refusal has its status; events are streamed; nobody without the token does anything."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from anabranch.control import server as module
from anabranch.control.controlled_cluster import ControlledCluster
from anabranch.control.server import ControlServer
from tests.anabranch.control.conftest import controlled


@asynccontextmanager
async def served(token: str = "", brokers: int = 1) -> AsyncIterator[tuple[ControlledCluster, aiohttp.ClientSession]]:
    async with controlled(brokers) as on:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        server = ControlServer(on, listener, token)
        await server.start()
        async with asyncio.timeout(60):
            try:
                root = f"http://127.0.0.1:{listener.getsockname()[1]}"
                async with aiohttp.ClientSession(root) as session:
                    yield on, session
            finally:
                await server.stop()


async def status(session: aiohttp.ClientSession, method: str, path: str, **how: Any) -> tuple[int, Any]:
    async with session.request(method, path, **how) as answer:
        return answer.status, await answer.json()


async def test_each_refusal_has_its_status() -> None:
    async with served() as (_, session):
        for method, path, how, expected in [
            ("GET", "/v1/nodes", {}, 200),
            ("POST", "/v1/topics", {"json": {"topic": "t"}}, 200),
            ("POST", "/v1/topics", {"json": {"topic": "t"}}, 400),
            ("POST", "/v1/topics", {"data": b"{"}, 400),
            ("POST", "/v1/topics", {"data": b"[]"}, 400),
            ("GET", "/v1/wait", {}, 400),
            ("GET", "/v1/topics/nowhere", {}, 404),
            ("POST", "/v1/nodes/7/kill", {}, 404),
            ("GET", "/v1/wait?topic=nowhere&timeout=0", {}, 408),
            ("POST", "/v1/nodes/1/start", {}, 409),
        ]:
            got, body = await status(session, method, path, **how)
            assert got == expected, (path, body)
            assert (expected == 200) != ("error" in body)
        assert (await status(session, "GET", "/v1/openapi.json"))[1]["openapi"].startswith("3.")


async def test_without_the_token_nothing_is_done() -> None:
    async with served("secret") as (on, session):
        for header in ({}, {"Authorization": "Bearer other"}, {"Authorization": "secret"}):
            got, body = await status(session, "POST", "/v1/nodes/1/kill", headers=header)
            assert (got, "--control-token" in body["error"]) == (401, True)
        assert 1 in on.cluster.nodes
        assert (await status(session, "GET", "/v1/nodes", headers={"Authorization": "Bearer secret"}))[0] == 200


async def test_events_are_streamed_from_where_one_was() -> None:
    async with served() as (on, session):
        for number in range(3):
            on.events.publish("tick", count=number)
        headers = {"Accept": "text/event-stream", "Last-Event-ID": "2"}
        async with session.get("/v1/events", headers=headers) as answer:
            assert answer.content_type == "text/event-stream"
            on.events.publish("tock")
            seen = [await answer.content.readuntil(b"\n\n") for _ in range(2)]
        assert [one.split(b"\n")[:2] for one in seen] == [[b"id: 3", b"event: tick"], [b"id: 4", b"event: tock"]]
        assert json.loads(seen[0].split(b"\n")[2].removeprefix(b"data: "))["count"] == 2
        assert (await status(session, "GET", "/v1/events?after=x", headers=headers | {"Last-Event-ID": ""}))[0] == 400


async def test_a_bug_is_told_in_the_log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("anabranch.control.state.nodes", lambda cluster: 1 / 0)
    async with served() as (_, session):
        with caplog.at_level(logging.ERROR, module.__name__):
            assert (await status(session, "GET", "/v1/nodes"))[0] == 500
    assert "bug in the control plane: GET /v1/nodes" in caplog.text
