"""Goal: what real processes make of the flights is what a loop makes of them, whatever comes, goes, dies or is resized.

Method: the application of `examples/flights.py`, its instances as processes that are stopped and killed. The aggregate
has a checksum of each aircraft's flights in their order: a flight that is lost, repeated or out of order shows. The
long form, with a year of flights, is `python -m benchmarks.streams --only exactness`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from anabranch.cluster import Cluster
from anabranch.demo.flights import DataMissing, Flight, load
from benchmarks.instances import Instance, Output, send_all
from clients import Admin, NewTopic, Producer
from examples import flights as example
from tests.conftest import run_strictly

FLIGHTS = 9000
SETTINGS = {"heartbeat_interval_ms": 100, "session_timeout_ms": 6000, "transaction_timeout_ms": 6000}

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def flights() -> list[Flight]:
    try:
        return load(FLIGHTS)
    except DataMissing as missing:
        pytest.skip(f"NO FLIGHTS WERE AGGREGATED BY INSTANCES: {missing}")


def test_the_aggregate_is_exact_through_kills_and_resizes(flights: list[Flight], tmp_path: Path) -> None:
    expected = example.batch(flights)

    async def whole() -> None:
        async with (
            asyncio.timeout(200),
            Cluster(brokers=1, seed=1) as cluster,
            Admin(cluster.bootstrap_servers) as admin,
            Producer(cluster.bootstrap_servers) as producer,
            Output(cluster.bootstrap_servers, "flights-per-aircraft") as output,
        ):
            for name in ("flights", "flights-per-aircraft"):
                await admin.create_topics([NewTopic(name=name, partitions=4, replication_factor=1)])
                await admin.wait_for_topic(name)
            one = Instance(
                "one",
                "examples/flights.py:topology",
                application_id="app",
                bootstrap=cluster.bootstrap_servers,
                directory=tmp_path,
                settings=SETTINGS,
            )
            two = one.like("two", SETTINGS)
            try:
                await through_everything(one, two, admin, producer, output, flights)
                await output.follow(lambda seen: seen.table == expected, timeout_s=90)
                await two.until(lambda each: len(each.running) + len(one.running) >= 3, "every task runs")
            finally:
                for each in (one, two):
                    await each.kill()
        moves = {name: one.moves.get(name, 0) + two.moves.get(name, 0) for name in ("deliveries", "keys", "held")}
        assert 0 < moves["keys"] < moves["held"], moves

    run_strictly(whole())


async def through_everything(
    one: Instance, two: Instance, admin: Admin, producer: Producer, output: Output, flights: list[Flight]
) -> None:
    """A third of the flights before anything happens, a third while it does, and the rest."""
    third = len(flights) // 3
    await one.start()
    await send_all(producer, "flights", flights[:third])
    await two.start()
    await two.until(lambda each: len(each.running) == 2, "it has its share")
    sending = asyncio.create_task(send_all(producer, "flights", flights[third : 2 * third], per_s=third / 2))
    seen = output.records
    await output.follow(lambda each: each.records > seen + third // 4)
    await one.kill()
    await admin.create_partitions("flights", 8)
    await one.start()
    await sending
    await admin.create_partitions("flights", 3, allow_shrink=True)
    await send_all(producer, "flights", flights[2 * third :])
