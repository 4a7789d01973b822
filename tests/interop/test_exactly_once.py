"""Consume, transform, produce in transactions, with confluent-kafka, while coordinators are killed: real processes.

Every record of the source stands in the target once, for readers of committed records.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from anabranch.zookeeper import why_unavailable
from tests.interop.clients import CLIENTS
from tests.interop.world import World

GROUP, TRANSACTION = 0, 1
KILLS = 10 if os.environ.get("ANABRANCH_INTEROP") else 2
"""The short form belongs to `make test`, the whole one to `make interop`."""
COPIERS = 2
AFTER_KILL_S = 90
"""A session, the timeout of a transaction, and librdkafka's own patience may add up."""

pytestmark = [
    pytest.mark.interop,
    pytest.mark.processes,
    pytest.mark.zookeeper,
    pytest.mark.timeout(60 + 40 * KILLS),
]


@pytest.fixture
def world() -> Iterator[World]:
    if reason := why_unavailable():
        pytest.skip(f"NO REAL ZOOKEEPER: {reason}")
    with asyncio.Runner() as runner:
        one = World(runner)
        runner.run(one.cluster.start())
        yield one
        runner.run(one.cluster.stop())


def test_every_record_is_copied_once_while_coordinators_die(world: World) -> None:
    """Goal: kills in the middle of transactions. Method: each kill waits for copies before it and after it."""
    client = CLIENTS[0]
    source, target, group = world.topic("source"), world.topic("target"), world.name("copy")
    asked = {"servers": world.servers, "topic": source}
    names = [f"{group}-{number}" for number in range(COPIERS)]
    with ExitStack() as stack:
        producer = stack.enter_context(client.run("produce", **asked, pace_ms=8))
        settings = {**asked, "target": target, "group": group, "session_ms": 6000}
        copiers = [stack.enter_context(client.run("copy", **settings, transactional_id=name)) for name in names]

        def copied() -> int:
            return sum(len(one["values"]) for copier in copiers for one in copier.told("copied"))

        for number in range(KILLS):
            key, kind = (names[number // 2 % COPIERS], TRANSACTION) if number % 2 else (group, GROUP)
            before = copied()
            copiers[0].until(lambda before=before: copied() >= before + 20, "copies before the kill")
            victim = world.coordinator(key, kind)
            world.kill(victim)
            world.until(lambda key=key, kind=kind, v=victim: world.coordinator(key, kind) not in (v, -1), "another")
            before = copied()
            copiers[0].until(lambda before=before: copied() >= before + 20, "copies after the kill", AFTER_KILL_S)
            world.heal(source, target, "__transaction_state")
        producer.stop()
        assert not producer.told("failed")
        asked["topic"] = target
        reader = stack.enter_context(
            client.run("consume", **asked, group=f"{target}-reader", isolation="read_committed")
        )
        everything = {f"copy of {value}" for value in producer.acked}
        reader.until(lambda: reader.values >= everything, "all copies")
        for copier in copiers:
            copier.stop()
        reader.stop()
    seen = Counter((one["partition"], one["offset"]) for one in reader.told("record"))
    values = Counter(one["value"] for one in reader.told("record"))
    assert max(seen.values()) == 1, "the reader itself read something twice"
    assert set(values) == everything
    assert not {value: times for value, times in values.items() if times > 1}, "copied twice"
