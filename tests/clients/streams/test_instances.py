"""Real processes give the same results as one loop, through starts, stops, kills and resizes.

Method: applications whose instances are processes that are stopped and killed. Exactly once: that of
`examples/flights.py`, whose aggregate has a checksum of each aircraft's flights in their order: a flight that is lost,
repeated or out of order shows. At least once, repeating is allowed after a kill: `itineraries.py` shows the rest.

It takes as long as it takes: a run has failed when nothing happens any more, and tells then all that is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from anabranch import Admin, NewTopic, Producer
from anabranch.clients.streams.config import AT_LEAST_ONCE
from anabranch.cluster.in_process import Cluster
from anabranch.demo.flights import DataMissing, Flight, load
from examples import flights as example
from tests.clients.streams import itineraries
from tests.clients.streams.inquest import inquest
from tests.clients.streams.instances import Instance, Output, send_all

FLIGHTS = 9000
SETTINGS = {"heartbeat_interval_ms": 100}
PATIENCE_S = 1000
"""For everything; something has happened in each minute of it."""

pytestmark = [pytest.mark.processes]


@pytest.fixture(scope="module")
def flights() -> list[Flight]:
    try:
        return load(FLIGHTS)
    except DataMissing as missing:
        pytest.skip(f"NO FLIGHTS WERE AGGREGATED BY INSTANCES: {missing}")


async def test_aggregate_is_exact_through_kills_and_resizes(flights: list[Flight], tmp_path: Path) -> None:
    common = {**SETTINGS, "session_timeout_ms": 6000, "transaction_timeout_ms": 6000}
    settings = {"one": common, "two": common}
    await play("examples/flights.py:topology", settings, flights, example.batch(flights), tmp_path)


@pytest.mark.costly
async def test_at_least_once_neither_loses_nor_reorders_records(flights: list[Flight], tmp_path: Path) -> None:
    """This guarantee does not fence former owners, so slow members must not be removed. Killed ones return under their
    name.
    """
    common = {**SETTINGS, "processing_guarantee": AT_LEAST_ONCE, "session_timeout_ms": 60_000}
    settings = {name: {**common, "group_instance_id": name} for name in ("one", "two")}
    expected = itineraries.batch(flights)
    await play("tests.clients.streams.itineraries:topology", settings, flights, expected, tmp_path)


async def play(
    topology: str,
    settings: Mapping[str, Mapping[str, object]],
    flights: list[Flight],
    expected: Mapping[bytes, Any],
    directory: Path,
) -> None:
    """Two instances of an application, until its output is what is expected."""
    async with (
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
            topology,
            application_id="app",
            bootstrap=cluster.bootstrap_servers,
            directory=directory,
            settings=settings["one"],
        )
        two = one.like("two", settings["two"])

        def complete(seen: Output) -> bool:
            one.must_live()
            two.must_live()
            return seen.table == expected

        try:
            async with asyncio.timeout(PATIENCE_S):
                await through_everything(one, two, admin, producer, output, flights)
                await output.follow(complete)
                await two.until(lambda each: len(each.running) + len(one.running) >= 3, "every task running")
        except Exception as error:
            story = await inquest(admin, "app", "flights", output, expected, [one, two])
            raise AssertionError(f"{error!r}\n{story}") from error
        finally:
            for each in (one, two):
                await each.kill()
    moves = {name: one.moves.get(name, 0) + two.moves.get(name, 0) for name in ("deliveries", "keys", "held")}
    assert 0 < moves["keys"] < moves["held"], moves


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
