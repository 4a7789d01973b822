"""`anabranch telemetry` subscribes to client metrics, and shows and awaits pushes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from anabranch.cli.telemetry import client_line, point_line
from anabranch.clients.connection import Connection
from tests.anabranch.cli.conftest import Command
from tests.broker.telemetry.pushing import get, push_of
from tests.running import running

UP = ["up", "--brokers", "1", "--port", "0", "--control", "127.0.0.1:0"]
TAKING = ["--kafka", "4.1", "--config", "client.telemetry.enable=true"]


async def push(servers: str, metrics: bytes, *, wanted: list[str]) -> None:
    """Ask what is wanted until it is that, and push for the last time."""
    host, _, port = servers.rpartition(":")
    async with asyncio.timeout(60):
        response: Any = None
        while response is None or response.requested_metrics != wanted:
            connection = await Connection.open(host, int(port), client_id="shop")
            try:
                response = await get(connection)
                if response.requested_metrics == wanted:
                    assert (await connection.call(push_of(response, metrics, terminating=True))).error_code == 0
            finally:
                await connection.close()


def test_clients_are_subscribed_shown_and_awaited(
    anabranch: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with running(*UP, *TAKING) as ready:
        monkeypatch.setenv("ANABRANCH_BOOTSTRAP_SERVERS", ready["bootstrap"])
        monkeypatch.setenv("ANABRANCH_CONTROL", ready["control"])
        assert "no client has requested a subscription: this needs" in anabranch("telemetry", "clients").output
        assert anabranch("telemetry", "subscriptions").output == ""
        asked = anabranch("telemetry", "subscribe", "some", "--metrics", "m.", "--interval-ms", "100")
        assert asked.output == "subscription some: clients push m. every 100 ms\n"
        anabranch("telemetry", "subscribe", "none", "--match", "client_id=x.*", "--match", "client_source_port=1")
        listed = anabranch("telemetry", "subscriptions").output.splitlines()
        assert [" ".join(one.split()) for one in listed] == [
            "none * every 1000 ms of clients with client_id=x.*,client_source_port=1",
            "some m. every 100 ms of all clients",
        ]
        anabranch("telemetry", "subscribe", "none", "--metrics", "n.", "--match", "client_id=y")
        (row,) = anabranch("telemetry", "subscriptions", "--json").output.splitlines()[:1]
        assert json.loads(row) == {"name": "none", "interval.ms": "1000", "match": "client_id=y", "metrics": "n."}
        assert anabranch("telemetry", "subscribe", "some", "--interval-ms", "1").exit_code == 2
        refused = anabranch("telemetry", "subscribe", "some", "--match", "colour=red")
        assert refused.exit_code == 1 and "write NAME=EXPRESSION with client_id" in refused.output
        assert anabranch("telemetry", "unsubscribe", "none").exit_code == 0

        late = anabranch("telemetry", "wait", "shop", "--timeout", "0")
        assert late.exit_code == 1 and "after 0 s no client 'shop' has requested a subscription" in late.output
        asyncio.run(push(ready["bootstrap"], b"OTLP", wanted=["m."]))
        waited = anabranch("telemetry", "wait", "shop", "--terminated")
        assert waited.exit_code == 0 and "1 push, the last at" in waited.output
        assert anabranch("telemetry", "clients").output == waited.output
        shown = anabranch("telemetry", "show", "shop")
        assert shown.exit_code == 0 and "its metrics are not shown: " in shown.output
        saved = tmp_path / "shop.otlp"
        assert anabranch("telemetry", "show", "shop", "--save", str(saved)).exit_code == 0
        assert saved.read_bytes() == b"OTLP"


def test_disabled_telemetry_is_explained(anabranch: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(*UP) as ready:
        refused = anabranch("telemetry", "clients", "--control", ready["control"])
        assert refused.exit_code == 1 and "start the cluster with --kafka 4.1 --config" in refused.output
        refused = anabranch("telemetry", "subscribe", "all", "--bootstrap-servers", ready["bootstrap"])
        assert refused.exit_code == 1 and "client metrics subscriptions need a KRaft profile" in refused.output
        refused = anabranch("telemetry", "subscriptions", "--bootstrap-servers", ready["bootstrap"])
        assert refused.exit_code == 1 and "client metrics subscriptions need a KRaft profile" in refused.output


def test_client_line_has_state_of_client() -> None:
    row: dict[str, Any] = {
        "node": 1, "client": "", "software": "rdkafka", "software_version": "2.6", "wanted": [], "interval_ms": 300000,
        "refused": "", "pushes": 0, "terminated": False, "last": None,
    }  # fmt: skip
    who = "node 1 - rdkafka 2.6"
    assert line(row) == f"{who} no subscription matches it: anabranch telemetry subscribe NAME"
    row |= {"wanted": ["a.", "b."], "refused": "TELEMETRY_TOO_LARGE"}
    assert line(row) == (
        f"{who} has not pushed yet; subscription: a.,b. every 300000 ms; refused with TELEMETRY_TOO_LARGE"
    )
    row |= {"pushes": 2, "refused": "", "last": {"at": 1.5, "bytes": 9, "compression": "zstd"}}
    assert line(row) == f"{who} 2 pushes, the last at 1.500 of 9 bytes (zstd)"


def line(row: dict[str, Any]) -> str:
    return " ".join(client_line(row).split())


def test_metric_line_has_values() -> None:
    point: dict[str, Any] = {
        "name": "a.b", "unit": "ms", "kind": "sum", "temporality": "delta", "value": 3, "attributes": {"node.id": 1},
    }  # fmt: skip
    assert " ".join(point_line(point).split()) == "a.b 3 ms sum, delta node.id=1"
    point |= {"value": 0.1234567, "temporality": None, "attributes": {}}
    assert " ".join(point_line(point).split()) == "a.b 0.123457 ms sum"
    point |= {"kind": "histogram", "count": 4, "sum": 10.0, "value": None}
    assert " ".join(point_line(point).split()) == "a.b 10 in 4 ms histogram"
