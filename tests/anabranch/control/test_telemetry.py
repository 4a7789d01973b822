"""Clients that push or only subscribed, why clients do not push, and their last push, within bounds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anabranch.control.controlled_cluster import ControlledCluster
from anabranch.control.events import Events
from anabranch.control.telemetry import ClientTelemetry
from anabranch.protocol.records.compression import Compression, compress
from tests.anabranch.control.conftest import controlled
from tests.broker.replication.replica_cluster import until
from tests.broker.telemetry.pushing import TELEMETRY, client_of, get, push_of
from tests.broker.telemetry.subscribing import subscribe


def taking(brokers: int = 1) -> Any:
    return controlled(brokers, kafka="4.1", properties=TELEMETRY)


def telemetry_of(on: ControlledCluster) -> ClientTelemetry:
    assert on.telemetry is not None
    return on.telemetry


def kinds(on: ControlledCluster) -> list[str]:
    return [one.kind for one in on.events.after(0) if one.kind.startswith("telemetry")]


async def test_client_is_tracked_from_subscription_to_last_push() -> None:
    async with asyncio.timeout(60), taking() as on:
        telemetry = telemetry_of(on)
        assert telemetry.is_taken and telemetry.rows() == []
        async with client_of(on.cluster) as client:
            await get(client)
            (row,) = telemetry.rows("shop")
            assert (row["wanted"], row["pushes"], row["last"], kinds(on)) == ([], 0, None, [])
            await subscribe(on.cluster, "all", metrics="m.", interval_ms="100")
            told = await get(client)
            assert (
                await client.call(push_of(told, compress(Compression.LZ4, b"one"), Compression.LZ4))
            ).error_code == 0
            (row,) = [one for one in telemetry.rows() if one["pushes"]]
            assert (row["client"], row["software"], row["node"]) == ("shop", "rdkafka", 1)
            assert (row["wanted"], row["interval_ms"], row["refused"], row["terminated"]) == (["m."], 100, "", False)
            assert (row["last"]["bytes"], row["last"]["compression"]) == (3, "lz4")
            assert telemetry.rows(row["instance"]) == [row] and telemetry.rows("nobody") == []
            assert kinds(on) == ["telemetry began"]
            await client.call(push_of(told, b"last", terminating=True))
        assert kinds(on) == ["telemetry began", "telemetry ended"]
        await until(lambda: telemetry.rows(row["instance"])[0]["wanted"] is None)  # the broker has forgotten it
        (row,) = telemetry.rows(row["instance"])
        assert (row["pushes"], row["terminated"], row["last"]["bytes"]) == (2, True, 4)
        assert telemetry.metrics_of(row["instance"]) == b"last"
        telemetry.forget()
        assert telemetry.rows(row["instance"]) == [] and telemetry.last("shop") is None


async def test_refused_push_is_shown() -> None:
    async with asyncio.timeout(60), taking() as on, client_of(on.cluster) as client:
        told = await get(client)
        await client.call(push_of(told, b"no zstd", Compression.ZSTD))
        (row,) = telemetry_of(on).rows()
        assert (row["refused"], row["pushes"]) == ("INVALID_RECORD", 0)
        with pytest.raises(TimeoutError, match="shop has pushed 0 of 1 times: refused with INVALID_RECORD"):
            await telemetry_of(on).wait_for("shop", 1, 0)


async def test_client_that_changes_brokers_stays_one_client() -> None:
    async with asyncio.timeout(60), taking(2) as on:
        await subscribe(on.cluster, "all", metrics="m.", interval_ms="100")
        async with client_of(on.cluster) as client:
            told = await get(client)
            await client.call(push_of(told))
        async with client_of(on.cluster, at=2) as client:
            await client.call(push_of(await get(client, told.client_instance_id)))
            (row,) = telemetry_of(on).rows()
            assert (row["node"], row["pushes"]) == (2, 2)
            assert kinds(on) == ["telemetry began"]
        await on.cluster.crash_broker(2)
        await on.cluster.start_broker(2)
        async with client_of(on.cluster, at=2) as client:
            await client.call(push_of(await get(client, told.client_instance_id)))
        assert telemetry_of(on).rows()[0]["pushes"] == 3, "a broker that was started again is listened to"


async def test_wait_ends_with_push_or_names_what_is_missing() -> None:
    async with asyncio.timeout(60), taking() as on:
        telemetry = telemetry_of(on)
        with pytest.raises(TimeoutError, match="after 0 s no client 'shop' has requested a subscription"):
            await telemetry.wait_for("shop", 1, 0)
        waiting = asyncio.create_task(telemetry.wait_for("shop", 1, 60))
        ended = asyncio.create_task(telemetry.wait_for("shop", 1, 60, terminated=True))
        async with client_of(on.cluster) as client:
            told = await get(client)
            with pytest.raises(TimeoutError, match="shop has pushed 0 of 1 times: no subscription matches it"):
                await telemetry.wait_for("shop", 1, 0)
            await client.call(push_of(told))
            assert [row["pushes"] for row in await waiting] == [1]
            with pytest.raises(TimeoutError, match="shop has not sent its terminating push"):
                await telemetry.wait_for("shop", 1, 0, terminated=True)
            await client.call(push_of(told, terminating=True))
            assert [row["terminated"] for row in await ended] == [True]
        await until(lambda: telemetry.rows()[0]["wanted"] is None)
        with pytest.raises(TimeoutError, match="shop has pushed 2 of 3 times: it has disconnected"):
            await telemetry.wait_for("shop", 3, 0)


@pytest.mark.parametrize(
    ("bounds", "left"),
    [
        ({"clients_max": 2}, ["b", "c"]),
        ({"bytes_max": 250}, ["b", "c"]),
        ({"bytes_max": 300}, ["a", "b", "c"]),
        ({"bytes_max": 99}, []),
        ({}, ["a", "b", "c"]),
    ],
)
async def test_stored_telemetry_is_bounded(bounds: dict[str, int], left: list[str]) -> None:
    async with asyncio.timeout(60), taking() as on:
        kept = ClientTelemetry(on.cluster, Events(), **bounds)
        on.cluster.on_node(kept.watch)
        for name in ("c", "a", "b", "c"):
            async with client_of(on.cluster, client_id=name) as client:
                told = await get(client, name.encode() * 16)
                assert (await client.call(push_of(told, bytes(100)))).error_code == 0
        await until(lambda: not list(on.cluster.nodes[1].services.telemetry.clients()))
        assert [row["client"] for row in kept.rows()] == left


async def test_cluster_without_telemetry_has_no_clients() -> None:
    async with controlled(1, kafka="4.1") as on:
        assert not telemetry_of(on).is_taken and telemetry_of(on).rows() == []
