"""Stock consumer groups on a topic that grows 2 -> 4 -> 8, while members and a broker die.

Judged is what their members told of what they were handed, in the order in which they told it. The same load on a topic
that is not gated shows what comes without: `make test` runs librdkafka and aiokafka; the others, kills, KIP-848 groups,
and the audit (`anabranch audit --deliveries`) are run where ANABRANCH_INTEROP is set.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer

from anabranch import Admin, Producer
from anabranch.clients.group_admin import describe_group
from anabranch.spark_jobs.java import why_missing
from tests.interop.clients import CLIENTS, COOPERATIVE, Client
from tests.interop.driving import Driver

WHOLE = bool(os.environ.get("ANABRANCH_INTEROP"))
KEYS = 40
LOADS = (150, 150, 150)
"""Records of each key, while there are 2, 4 and 8 partitions."""
GROUPS_MAX = 10
PATIENCE_S = 120.0
AUDIT_PATIENCE_S = 600.0
"""Spark alone needs more than two minutes on a machine with thirty processes for each two cores."""

pytestmark = [pytest.mark.interop, pytest.mark.anabranch(brokers=3, kafka="4.1")]


class Handed(NamedTuple):
    """One delivery."""

    member: str
    partition: int
    offset: int
    key: str
    sequence: int


def variants() -> Iterator[object]:
    for client in CLIENTS:
        for how in ("eager", "cooperative", "consumer"):
            if how == "cooperative" and COOPERATIVE in client.lacks:
                continue
            if how == "consumer" and client.name not in ("confluent-kafka", "java", "franz-go"):
                continue
            small = client.name in ("confluent-kafka", "aiokafka") and how == "eager"
            if (WHOLE and client.name != "kcat") or small:
                yield pytest.param(client, how, id=f"{client.name}-{how}")


async def send(servers: str, topic: str, number: int) -> None:
    """The records of one count of partitions; each has the number of it among those of its key as its value."""
    first = sum(LOADS[:number])
    async with Producer(bootstrap_servers=servers) as producer:
        for sequence in range(first, first + LOADS[number]):
            for key in range(KEYS):
                await producer.send(topic, b"%08d" % sequence, b"key-%d" % key)
        await producer.flush()


async def grow(servers: str, topic: str, count: int) -> None:
    async with Admin(servers) as admin:
        await admin.create_partitions(topic, count)


async def assigned_by(servers: str, group: str) -> str:
    """The assignor; `uniform` is one that only brokers have."""
    async with Admin(servers) as admin:
        return (await describe_group(admin.network, group)).protocol


def member(client: Client, how: str, servers: str, topic: str, group: str) -> Driver:
    arguments: dict[str, Any] = {"protocol": "consumer"} if how == "consumer" else {"assignor": how}
    return client.run("consume", servers=servers, topic=topic, group=group, session_ms=6000, **arguments)


def misplaced(deliveries: Iterable[Handed]) -> list[tuple[Handed, Handed]]:
    """Those that came after a younger one of their key out of another partition."""
    youngest: dict[str, dict[int, Handed]] = defaultdict(dict)
    found = []
    for one in deliveries:
        known = youngest[one.key]
        elsewhere = [other for index, other in known.items() if index != one.partition]
        found += [(other, one) for other in elsewhere if other.sequence > one.sequence]
        if one.partition not in known or known[one.partition].sequence < one.sequence:
            known[one.partition] = one
    return found


class Members:
    """The members of one group, and what they were handed, in the order in which they told it."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.running: list[Driver] = []
        self.deliveries: list[Handed] = []
        self._places: set[tuple[int, int]] = set()

    def start(self, name: str, driver: Driver) -> None:
        def hear(event: dict[str, Any]) -> None:
            if event["event"] == "record":
                one = Handed(name, event["partition"], event["offset"], event["key"], int(event["value"]))
                self.deliveries.append(one)
                self._places.add((one.partition, one.offset))

        self._stack.enter_context(driver)
        driver.listen(hear)
        self.running.append(driver)

    def until_handed(self, count: int) -> None:
        """Wait until so many different records of each key were handed out."""
        self.running[-1].until(lambda: len(self._places) >= count * KEYS, f"{count * KEYS} records", PATIENCE_S)


@pytest.mark.parametrize(("client", "how"), list(variants()))
def test_keys_keep_order_while_topic_grows(anabranch: Any, client: Client, how: str, tmp_path: Path) -> None:
    if client.absent:
        pytest.skip(f"ABSENT: {client.absent}")
    servers = anabranch.bootstrap_servers
    topic = anabranch.topic("orders", partitions=2)
    with ExitStack() as stack:
        members = Members(stack)
        asyncio.run(send(servers, topic, 0))
        for name in ("a", "b"):
            members.start(name, member(client, how, servers, topic, "readers"))
        members.until_handed(1)
        assert (asyncio.run(assigned_by(servers, "readers")) == "uniform") == (how == "consumer")
        asyncio.run(grow(servers, topic, 4))
        asyncio.run(send(servers, topic, 1))
        if WHOLE and how != "consumer":  # a session of those lasts 45 s
            members.running[0].kill()
            members.start("c", member(client, how, servers, topic, "readers"))
        if WHOLE:
            anabranch.nodes[1].kill()  # which leads, coordinates, and may be the controller
            anabranch.nodes[1].start()
        asyncio.run(grow(servers, topic, 8))
        asyncio.run(send(servers, topic, 2))
        members.until_handed(sum(LOADS))
        late = Members(stack)
        for name in ("d", "e"):
            late.start(name, member(client, how, servers, topic, "late"))
        late.until_handed(sum(LOADS))
        found = members.deliveries, late.deliveries
    for place, deliveries in enumerate(found):
        assert misplaced(deliveries) == []
        assert {one.partition for one in deliveries} == set(range(8))
        if WHOLE:
            assert audit(deliveries, tmp_path / str(place)) == 0


@pytest.mark.parametrize("client", [one for one in CLIENTS if one.name == "confluent-kafka"], ids=["confluent-kafka"])
def test_keys_lose_order_without_gates(anabranch: Any, client: Client, tmp_path: Path) -> None:
    """The control: a topic without gates, and groups with a large backlog. One in thirty is in order by chance."""
    servers = anabranch.bootstrap_servers
    topic = anabranch.topic("orders", partitions=2, **{"reshard.legacy.consumers": "ignore"})
    for number, count in enumerate((2, 4, 8)):
        if number:
            asyncio.run(grow(servers, topic, count))
        asyncio.run(send(servers, topic, number))
    for attempt in range(GROUPS_MAX):
        with ExitStack() as stack:
            members = Members(stack)
            for name in ("a", "b"):
                members.start(name, member(client, "eager", servers, topic, f"readers-{attempt}"))
            members.until_handed(sum(LOADS))
            deliveries = members.deliveries
        if misplaced(deliveries):
            break
    assert misplaced(deliveries)
    if WHOLE:
        assert audit(deliveries, tmp_path) == 1


async def offsets_handed(servers: str, topic: str) -> list[int]:
    """What a member of aiokafka is handed until nothing more comes; it commits that."""
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    offsets: list[int] = []
    async with AIOKafkaConsumer(topic, bootstrap_servers=servers, group_id="readers", **settings) as consumer:
        (mine,) = consumer.assignment()
        (end,) = (await consumer.end_offsets([mine])).values()
        while await consumer.position(mine) < end:
            for records in (await consumer.getmany(mine, timeout_ms=100)).values():
                offsets += [one.offset for one in records]
        await consumer.commit()
    return offsets


def test_aiokafka_resets_offsets_when_offset_fetch_is_refused(anabranch: Any) -> None:
    """The reason for its repeated deliveries when coordinators die (docs/faults.md)."""
    servers, topic = anabranch.bootstrap_servers, anabranch.topic("orders", partitions=1)
    asyncio.run(send(servers, topic, 0))
    everything = list(range(LOADS[0] * KEYS))
    assert asyncio.run(offsets_handed(servers, topic)) == everything
    assert asyncio.run(offsets_handed(servers, topic)) == []
    with anabranch.control.faults(api="OffsetFetch", error="NOT_COORDINATOR", times=1):
        assert asyncio.run(offsets_handed(servers, topic)) == everything


def audit(deliveries: Iterable[Handed], folder: Path) -> int:
    """The audit's exit status for delivery logs."""
    if reason := why_missing():
        pytest.skip(f"NOT AUDITED: {reason}")
    lines = [json.dumps(one._asdict()) for one in deliveries]
    folder.mkdir(exist_ok=True)
    file = folder / "handed.jsonl"
    file.write_text("\n".join(lines) + "\n")
    words = ("--deliveries", str(file), "--out", str(folder / "out"))
    ran = subprocess.run(
        [sys.executable, "-m", "anabranch.cli.main", "audit", *words],
        capture_output=True,
        text=True,
        timeout=AUDIT_PATIENCE_S,
    )
    print(ran.stdout, ran.stderr)
    return ran.returncode
