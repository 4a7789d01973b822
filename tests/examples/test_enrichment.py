"""examples/enrichment.py: results are complete and in order while table and stream are resized, and `check` sees it."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from anabranch.clients.streams.streams import Streams
from anabranch.testing import TopologyTestDriver
from examples import enrichment
from examples.enrichment import CUSTOMERS, check, customer_id, faults, send_customers, send_orders, topology
from tests.cases import for_each
from tests.clients.streams.world import streams_world, until

Results = list[tuple[bytes, dict[str, Any]]]


def test_order_gets_the_name_of_its_customer() -> None:
    with TopologyTestDriver(topology()) as driver:
        driver.pipe("customers", "customer-1", {"name": "Ada"})
        driver.pipe("orders", "customer-1", {"number": 1})
        driver.pipe("orders", "customer-2", {"number": 2})
        assert [(row.key, row.value) for row in driver.read("orders-with-names")] == [
            (b"customer-1", {"number": 1, "name": "Ada"}),
            (b"customer-2", {"number": 2, "name": None}),
        ]


def results(count: int) -> Results:
    return [(customer_id(number), {"number": number, "name": f"name {number % CUSTOMERS}"}) for number in range(count)]


RIGHT = results(CUSTOMERS + 2)


@for_each(
    [
        (RIGHT, []),
        (list(reversed(RIGHT[:CUSTOMERS])) + RIGHT[CUSTOMERS:], []),
        (RIGHT[:1] + RIGHT[2:], ["customer-1 has order 51 in place of 1", "order 51 is missing"]),
        ([*RIGHT, RIGHT[0]], ["customer-0 has order 0 in place of None"]),
        ([*RIGHT[:-1], (RIGHT[-1][0], {"number": 51, "name": None})], ["order 51 of customer-1 has the name None"]),
    ]
)
def test_faults_of_results_are_named(found: Results, expected: list[str]) -> None:
    assert faults(found, len(RIGHT)) == expected


async def test_orders_are_complete_and_in_order_when_both_topics_are_resized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(enrichment, "PAUSE_S", 0.01)
    async with streams_world(tmp_path, topics=()) as world:
        servers = world.cluster.bootstrap_servers
        await world.topics("customers", "orders", "orders-with-names", partitions=2)
        async with world.instance(topology()) as streams:
            await send_customers(servers)
            await until(lambda: streams.processed == CUSTOMERS, "the table is complete")
            sending = asyncio.create_task(send_orders(servers))
            await until(lambda: streams.processed > 3 * CUSTOMERS, "orders are processed")
            await world.admin.create_partitions("customers", 4)
            await world.admin.create_partitions("orders", 4)
            assert not sending.done(), "all orders were sent before the resizes"
            await sending
            await check(servers)
            assert "each came once" in capsys.readouterr().out
            await until(partial(has_moved, streams), "rows of the table have moved")


def has_moved(streams: Streams) -> bool:
    return 0 < streams.moves.keys < CUSTOMERS and len(streams.tasks) == 4
