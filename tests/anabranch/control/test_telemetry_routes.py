"""Each route of client metrics works, and refuses invalid requests with a reason."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

from anabranch.control.actions import ActionRefused, UnknownNode
from anabranch.control.routes import WaitTimedOut
from tests.anabranch.control.conftest import controlled
from tests.anabranch.control.test_routes import ask
from tests.broker.telemetry.pushing import TELEMETRY, client_of, get, push_of


async def test_clients_are_listed_awaited_and_their_metrics_served(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(60), controlled(1, kafka="4.1", properties=TELEMETRY) as on, client_of(on.cluster) as a:
        for name in ("get_pushed_metrics", "get_otlp"):
            with pytest.raises(UnknownNode, match="no client 'shop' has requested a subscription"):
                await ask(on, name, client="shop")
        told = await get(a)
        with pytest.raises(UnknownNode, match="shop has not pushed yet"):
            await ask(on, "get_otlp", client="shop")
        assert [row["pushes"] for row in await ask(on, "get_telemetry")] == [0]
        await a.call(push_of(told, b"OTLP"))
        rows = await ask(on, "wait_for_pushes", client="shop", query={"pushes": "1"})
        assert rows == await ask(on, "get_telemetry") and rows[0]["pushes"] == 1
        json.dumps(rows)
        with pytest.raises(WaitTimedOut, match="shop has pushed 1 of 2 times"):
            await ask(on, "wait_for_pushes", client="shop", query={"pushes": "2", "timeout": "0"})
        with pytest.raises(WaitTimedOut, match="shop has not sent its terminating push"):
            await ask(on, "wait_for_pushes", client="shop", query={"terminated": "true", "timeout": "0"})
        with pytest.raises(ValueError, match="pushes is a number, not 'x'"):
            await ask(on, "wait_for_pushes", client="shop", query={"pushes": "x"})
        assert await ask(on, "get_otlp", client=rows[0]["instance"]) == b"OTLP"
        (shown,) = await ask(on, "get_pushed_metrics", client="shop")
        assert shown["metrics"] is None and shown["unread"], "these are none, and that is said"
        monkeypatch.setitem(sys.modules, "opentelemetry.proto.metrics.v1", None)
        (shown,) = await ask(on, "get_pushed_metrics", client="shop")
        assert (shown["metrics"], shown["last"]["bytes"]) == (None, 4)
        assert shown["unread"] == "to show them: pip install 'anabranch[telemetry]'"


async def test_disabled_telemetry_is_refused_with_remedy() -> None:
    async with controlled(1) as on:
        with pytest.raises(ActionRefused, match="no broker accepts client metrics"):
            await ask(on, "get_telemetry")
