"""A cluster with activity for every view of the dashboard: `python -m tests.dashboard.lively [--token T]`.

Prints where it is when all of it has come about, and goes on until it is told to stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Final

from anabranch import Admin, Consumer, NewTopic, Producer
from anabranch.clock.cluster_clock import ClusterClock
from anabranch.clock.loop import ClockLoop
from anabranch.cluster.in_process import Cluster
from anabranch.control.endpoint import Address, ControlEndpoint
from anabranch.faults.rule import Rule

JOURNAL: Final = 500
TOPICS: Final = {"orders": 4, "payments": 6, "clicks": 12}


class Life:
    """The activity in one cluster."""

    def __init__(self, servers: str, producer: Producer, admin: Admin) -> None:
        self.servers = servers
        self.producer = producer
        self.admin = admin
        self.rng = random.Random(7)
        self.tasks: list[asyncio.Task[None]] = []
        self.open = asyncio.Event()

    def play(self, *works: object) -> None:
        """Have this go on."""
        self.tasks += [asyncio.create_task(one) for one in works]  # type: ignore[arg-type]

    async def write(self, topic: str, count: int) -> None:
        """So many records."""
        sent = [
            await self.producer.send(topic, b'{"amount": %d}' % number, b"customer-%d" % self.rng.randrange(300))
            for number in range(count)
        ]
        await asyncio.gather(*sent)

    async def trickle(self) -> None:
        """Some records a second."""
        while True:
            for topic, count in (("orders", 3), ("payments", 1), ("clicks", 6)):
                await self.write(topic, count)
            await asyncio.sleep(0.15)

    async def read(self, topic: str, group: str, member: str, pause_s: float = 0.0) -> None:
        """Read as a member of a group."""
        how = {"group_id": group, "client_id": member, "auto_offset_reset": "earliest", "auto_commit_interval_ms": 500}
        async with Consumer(topic, bootstrap_servers=self.servers, **how) as consumer:
            async for _ in consumer:
                if pause_s:
                    await asyncio.sleep(pause_s)

    async def stand_at_gates(self) -> None:
        """Read a little, commit that, and then no more: the group stands before closed gates."""
        how = {"group_id": "reports", "client_id": "nightly", "auto_offset_reset": "earliest", "max_poll_records": 5}
        async with Consumer("orders", bootstrap_servers=self.servers, enable_auto_commit=False, **how) as consumer:
            await consumer.getmany(timeout_ms=5000)
            await consumer.commit()
            while True:
                await consumer.getmany(timeout_ms=1000)

    async def transact(self) -> None:
        """Keep a transaction open, and end others beside it."""
        async with (
            Producer(self.servers, transactional_id="settlement-1") as slow,
            Producer(self.servers, transactional_id="settlement-2") as quick,
        ):
            await slow.begin_transaction()
            await slow.send_and_wait("payments", b"x", b"customer-1")
            self.open.set()
            while True:
                async with quick.transaction():
                    await quick.send_and_wait("payments", b"x", b"customer-2")
                await asyncio.sleep(3)


@contextlib.asynccontextmanager
async def lively(token: str) -> AsyncIterator[str]:
    """A cluster in which all of it is going on; where its control plane is."""
    clock = ClusterClock.new()
    assert clock is not None
    cluster, door = Cluster(3, seed=2), ControlEndpoint(Address("127.0.0.1", 0), token, JOURNAL)
    async with clock.running(cluster), door.open(cluster, clock):
        servers = cluster.bootstrap_servers
        async with Admin(servers) as admin, Producer(servers) as producer:
            await admin.create_topics([NewTopic(name=name, partitions=count) for name, count in TOPICS.items()])
            await admin.set_password("carol", "secret")
            for name in TOPICS:
                await admin.wait_for_topic(name, replicas=3)
            life = Life(servers, producer, admin)
            await life.write("orders", 80)
            life.play(life.transact(), life.stand_at_gates())
            life.play(life.read("orders", "billing", "billing-a"), life.read("orders", "billing", "billing-b"))
            life.play(life.read("payments", "ledger", "ledger-1"), life.read("clicks", "analytics", "spark-1", 0.05))
            for count in (6, 9, 5):
                await life.write("orders", 150)
                await admin.create_partitions("orders", count, allow_shrink=True)
            await life.write("orders", 100)
            cluster.faults.add(
                Rule(name="slow-commits", api=("OffsetCommit",), group=("ledger",), delay_ms=(20.0, 60.0))
            )
            life.play(life.trickle())
            await life.open.wait()
            try:
                yield door.url
            finally:
                for task in life.tasks:
                    task.cancel()
                await asyncio.gather(*life.tasks, return_exceptions=True)


async def main(token: str) -> None:
    """Run until a signal."""
    stop = asyncio.Event()
    for one in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(one, stop.set)
    async with lively(token) as url:
        print(f"ready {url}", flush=True)
        await stop.wait()


@contextlib.contextmanager
def elsewhere(*words: str) -> Iterator[str]:
    """Such a cluster in a process of its own, or what `words` start; where its control plane is."""
    command = words or ("-m", "tests.dashboard.lively")
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("ready "), f"it did not start: {line!r}"
            yield line.split(" control=")[-1].split()[-1]
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        runner.run(main(sys.argv[2] if sys.argv[1:2] == ["--token"] else ""))
