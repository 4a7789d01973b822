"""Transactional copies with confluent-kafka as processes, while coordinators are killed.

Every record of the source stands in the target once, for readers of committed records.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.interop.batches import batches_of
from tests.interop.clients import CLIENTS
from tests.interop.driving import PATIENCE_S, Driver
from tests.interop.world import World, running_world

GROUP, TRANSACTION = 0, 1
KILLS = 10 if os.environ.get("ANABRANCH_INTEROP") else 2
"""The short form belongs to `make test-all`, the whole one to `make interop`."""
COPIERS = 2
FIRST = 100
AFTER_KILL_S = 90
"""A session, the timeout of a transaction, and librdkafka's own patience may add up."""

pytestmark = [
    pytest.mark.interop,
    pytest.mark.processes,
    pytest.mark.zookeeper,
]


@pytest.fixture
def world() -> Iterator[World]:
    with running_world() as one:
        yield one


@pytest.mark.costly
def test_every_record_is_copied_once_while_coordinators_die(world: World) -> None:
    """Kills during transactions, and one while copiers are idle. Each kill waits for copies before it and after it."""
    client = CLIENTS[0]
    source, target, group = world.topic("source"), world.topic("target"), world.name("copy")
    asked = {"servers": world.servers, "topic": source}
    names = [f"{group}-{number}" for number in range(COPIERS)]
    with ExitStack() as stack:
        first = stack.enter_context(client.run("produce", **asked, count=FIRST))
        settings = {**asked, "target": target, "group": group, "session_ms": 6000, "isolation": "read_committed"}
        copiers = [stack.enter_context(client.run("copy", **settings, transactional_id=name)) for name in names]

        def copied() -> int:
            return sum(len(one["values"]) for copier in copiers for one in copier.told("copied"))

        def copies(more: int, what: str, timeout_s: float = PATIENCE_S) -> None:
            wanted = copied() + more
            copiers[0].until(lambda: copied() >= wanted, what, timeout_s)

        def kill_coordinator(key: str, kind: int) -> None:
            victim = world.coordinator(key, kind)
            world.kill(victim)
            world.until(lambda: world.coordinator(key, kind) not in (victim, -1), "another coordinator")

        copiers[0].until(lambda: copied() >= FIRST, "the first copies")
        kill_coordinator(group, GROUP)
        producer = stack.enter_context(client.run("produce", **asked, first=FIRST, pace_ms=8))
        for number in range(1, KILLS):
            copies(20, "copies after the kill", AFTER_KILL_S)
            world.heal(source, target, "__transaction_state")
            copies(20, "copies before the kill")
            kill_coordinator(*((names[number // 2 % COPIERS], TRANSACTION) if number % 2 else (group, GROUP)))
        copies(20, "copies after the last kill", AFTER_KILL_S)
        world.heal(source, target, "__transaction_state")
        producer.stop()
        assert not first.told("failed") and not producer.told("failed")
        asked["topic"] = target
        reader = stack.enter_context(
            client.run("consume", **asked, group=f"{target}-reader", isolation="read_committed")
        )
        everything = {f"copy of {value}" for value in first.acked | producer.acked}
        # One copier may have made all the copies since the last kill, and the other have everything before it yet.
        try:
            while not reader.values >= everything:  # on a busy machine the producer was faster than the copiers
                before = len(reader.values)
                reader.until(lambda before=before: len(reader.values) > before, "more copies", AFTER_KILL_S)
        except AssertionError as gave_up:
            gave_up.add_note(history(copiers, everything - reader.values))
            gave_up.add_note("\n".join(world.do(batches_of(world.servers, target))))
            raise
        for copier in copiers:
            copier.stop()
        reader.stop()
    seen = Counter((one["partition"], one["offset"]) for one in reader.told("record"))
    values = Counter(one["value"] for one in reader.told("record"))
    assert max(seen.values()) == 1, "the reader itself read something twice"
    assert set(values) == everything
    twice = {value for value, times in values.items() if times > 1}
    assert not twice, f"copied twice: {history(copiers, twice)}"


def history(copiers: list[Driver], copies: set[str]) -> str:
    """What the copiers have told, and of their copies only these."""
    lines = [f"{len(copies)} copies, such as {sorted(copies)[:5]}"]
    for copier in copiers:
        for one in copier.events:
            values = [value for value in one.get("values", ()) if f"copy of {value}" in copies]
            if values or one["event"] != "copied":
                lines.append(f"{copier.what}: {one['event']} {values or one}")
    return "\n".join(lines)
