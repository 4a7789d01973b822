"""Other clients keep going through the death of a leader: real processes, a real ZooKeeper, SIGKILL.

The promise: what was acknowledged (acks=all) is delivered, and per key in order.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from anabranch.processes import ProcessCluster
from tests.interop.other_clients import CLIENTS, in_key_order, paced

pytestmark = [
    pytest.mark.interop,
    pytest.mark.processes,
    pytest.mark.zookeeper,
    pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning"),
]

RECORDS_PER_PHASE = 300
PHASE_TIMEOUT_S = 60


class KillableCluster:
    """Three broker processes, driven from tests that block."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self.runner = runner
        self.cluster = ProcessCluster(3, properties={"num.partitions": "3", "min.insync.replicas": "2"})

    @property
    def servers(self) -> str:
        """Where clients begin."""
        return self.cluster.bootstrap_servers

    def partition(self, topic: str, index: int = 0) -> Any:
        """What Metadata says of a partition."""
        return self.runner.run(self._partition(topic, index))

    async def _partition(self, topic: str, index: int) -> Any:
        from clients.connection import Connection
        from protocol.apis.metadata import MetadataRequest, MetadataRequestTopic

        node = next(node for node in self.cluster.brokers if node.running)
        connection = await Connection.open(node.host, node.port, client_id="test")
        try:
            asked = [MetadataRequestTopic(name=topic)]
            response = await connection.call(MetadataRequest(topics=asked, allow_auto_topic_creation=False))
        finally:
            await connection.close()
        (found,) = [one for one in response.topics[0].partitions if one.partition_index == index] or [None]
        return found


@pytest.fixture(scope="module")
def killable() -> Iterator[KillableCluster]:
    with asyncio.Runner() as runner:
        one = KillableCluster(runner)
        runner.run(one.cluster.start())
        yield one
        runner.run(one.cluster.stop())


def wait_for(condition: Any, what: str, timeout_s: float = PHASE_TIMEOUT_S) -> None:
    """Poll a condition that other threads and processes bring about."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"gave up waiting for: {what}"
        time.sleep(0.05)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", CLIENTS)
def test_a_leader_kill_loses_nothing_that_was_acknowledged(killable: KillableCluster, name: str) -> None:
    other, topic = CLIENTS[name], f"killed-{name}"
    stop, finished = threading.Event(), threading.Event()
    acked: list[Any] = []
    seen: list[Any] = []
    with ThreadPoolExecutor(2) as pool:
        try:
            producing = pool.submit(other.produce, killable.servers, topic, paced(stop), acked)
            wait_for(lambda: len(acked) >= RECORDS_PER_PHASE or producing.done(), "records before the kill")
            consuming = pool.submit(other.consume, killable.servers, topic, topic, seen, finished.is_set)
            wait_for(lambda: len(seen) >= RECORDS_PER_PHASE or consuming.done(), "deliveries before the kill")
            victim = killable.partition(topic).leader_id
            killable.runner.run(killable.cluster.kill(victim))
            before = len(acked)
            wait_for(
                lambda: producing.done() or consuming.done() or len(acked) >= before + RECORDS_PER_PHASE,
                "records after the kill",
            )
            assert killable.partition(topic).leader_id not in (victim, -1)
            stop.set()
            producing.result(PHASE_TIMEOUT_S)
            wait_for(lambda: consuming.done() or set(acked) <= set(seen), "all that was acknowledged is delivered")
        finally:
            stop.set()
            finished.set()
        consuming.result(PHASE_TIMEOUT_S)
    assert in_key_order(seen)
    killable.runner.run(killable.cluster.restart(victim))
    wait_for(lambda: len(killable.partition(topic).isr_nodes) == 3, "the killed broker is back in sync")
