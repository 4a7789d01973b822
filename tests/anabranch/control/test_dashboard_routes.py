"""Rows of now and of the past, the ZooKeeper tree, and a stream of changes for pages."""

from __future__ import annotations

import asyncio
import json

from anabranch.control.route import ControlRequest
from tests.anabranch.control.test_server import served, status


async def test_current_and_historical_rows_are_served() -> None:
    async with served() as (_, session):
        code, told = await status(session, "GET", "/v1/history?at=0")
        assert (code, told["error"]) == (404, "nothing is recorded yet")
        assert (await status(session, "GET", "/v1/history?at=now"))[0] == 400
        now = (await status(session, "GET", "/v1/watch"))[1]
        assert now["rows"]["node/1"]["state"] == "alive"
        assert (await status(session, "POST", "/v1/topics", json={"topic": "t", "partitions": 1}))[0] == 200
        later = (await status(session, "GET", "/v1/watch"))[1]
        assert "topic/t" in later["rows"]
        before = (await status(session, "GET", f"/v1/history?at={now['at']}"))[1]
        assert "topic/t" not in before["rows"]
        assert (await status(session, "GET", f"/v1/history?at={now['at'] - 100}"))[1]["error"].startswith(
            "the record begins at"
        )


async def test_dashboard_updates_are_streamed() -> None:
    async with served() as (on, session), session.get("/v1/watch", headers={"Accept": "text/event-stream"}) as answer:
        assert (await answer.content.readuntil(b"\n\n")).startswith(b"event: snapshot\n")
        on.events.publish("tick")
        async with asyncio.timeout(60):
            while True:
                message = await answer.content.readuntil(b"\n\n")
                if b'"kind":"tick"' in message:
                    break
        assert json.loads(message.split(b"data: ")[1])["events"][0]["kind"] == "tick"


async def test_zookeeper_tree_is_served() -> None:
    async with served() as (on, session):
        root = (await status(session, "GET", "/v1/zookeeper"))[1]
        assert {"name": "brokers", "children": 3} in root["children"]
        broker = (await status(session, "GET", "/v1/zookeeper?path=/brokers/ids/1"))[1]
        assert json.loads(broker["data"])["port"] == on.cluster.address(1)[1]
        assert broker["owner"]
        assert (await status(session, "GET", "/v1/zookeeper?path=/nowhere"))[0] == 404
        assert ControlRequest({}, {}, {}).content == b""
