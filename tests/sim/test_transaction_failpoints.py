"""Every transaction coordinator fails once after each step; every transaction ends consistently.

It dies, or loses its session and lives, or freezes until others have taken over and goes on where it was.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from anabranch import Admin, NewTopic, Producer
from anabranch.broker.coordinators.runtime.failpoints import STEPS
from anabranch.broker.replication.partition import Partition
from anabranch.clients.producer.transaction_errors import AbortableError, TransactionError
from anabranch.protocol.records.batch import iter_batches
from anabranch.protocol.records.control import ControlType, read_control
from anabranch.protocol.records.record import iter_records
from tests.sim.clients import CLIENT_FAILURES
from tests.sim.cluster import SimCluster
from tests.sim.loop import Process

PARTITIONS = 4
TRANSACTIONS = 12
FAILURES = (*CLIENT_FAILURES, TransactionError)


class Ledger:
    """What a producer knows about its transactions: by number, whether it was committed; None if it cannot know."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.ended: dict[int, bool | None] = {}
        self.lives = 0

    async def keep(self) -> None:
        """Run transactions one by one, as one producer after another under the same id."""
        while len(self.ended) < TRANSACTIONS:
            self.lives += 1
            try:
                async with Producer(
                    self.cluster.bootstrap,
                    transactional_id="ledger",
                    transaction_timeout_ms=3000,
                    request_timeout_ms=1500,
                    delivery_timeout_ms=8000,
                    max_block_ms=8000,
                    rng=self.cluster.rng(f"ledger-{self.lives}"),
                ) as producer:
                    while len(self.ended) < TRANSACTIONS:
                        await self._transact(producer, len(self.ended))
            except FAILURES as error:
                self.cluster.tell(f"the ledger's producer ends: {error!r}")
                await asyncio.sleep(0.2)

    async def _transact(self, producer: Producer, number: int) -> None:
        commit = number % 3 != 2
        await producer.begin_transaction()
        self.ended[number] = False
        try:
            sent = [await producer.send("t", b"%d" % number, partition=index) for index in range(PARTITIONS)]
            await asyncio.gather(*sent, return_exceptions=True)
            if commit:
                self.ended[number] = None
                await producer.commit_transaction()
                self.ended[number] = True
                return
        except AbortableError:
            self.ended[number] = False
        await producer.abort_transaction()


def content(partition: Partition) -> bytes:
    """All batches of a log; one read ends with a segment."""
    log, data = partition.log, bytearray()
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        part = bytes(log.read(offset, 1 << 30))
        offset = list(iter_batches(part))[-1][1].next_offset
        data += part
    return bytes(data)


def settled(partition: Partition) -> tuple[Counter[int], set[int]]:
    """How often each transaction's record stands committed in a log, and the producers whose transactions are open."""
    committed: Counter[int] = Counter()
    open_ones: dict[int, list[int]] = {}
    data = content(partition)
    for position, header in iter_batches(data):
        if not header.is_control:
            values = [int(bytes(record.value or b"")) for record in iter_records(data, position)]
            open_ones.setdefault(header.producer_id, []).extend(values)
            continue
        values = open_ones.pop(header.producer_id, [])
        if read_control(data, position).type is ControlType.COMMIT:
            committed.update(values)
    return committed, set(open_ones)


def copies(cluster: SimCluster) -> list[Partition]:
    """The leaders' replicas."""
    leaders = [cluster.replica(cluster.leader("t", index), "t", index) for index in range(PARTITIONS)]
    return [one for one in leaders if one is not None]


async def story(cluster: SimCluster, step: str, how: Any) -> Ledger:
    for machine in cluster.brokers:
        machine.failpoint, machine.at_failpoint = step, how
    await cluster.start()
    ledger = Ledger(cluster)

    async def application() -> None:
        async with Admin(cluster.bootstrap, rng=cluster.rng("admin")) as admin:
            await admin.create_topics([NewTopic(name="t", partitions=PARTITIONS, replication_factor=3)])
        await ledger.keep()

    await cluster.loop.spawn(Process("ledger"), application())
    await cluster.until(cluster.in_sync, 30, "all replicas are in sync")
    await cluster.until(
        lambda: len(copies(cluster)) == PARTITIONS and not any(settled(one)[1] for one in copies(cluster)),
        30,
        "every transaction has ended everywhere",
    )
    await cluster.until(
        lambda: all(one.last_stable_offset == one.log.log_end_offset for one in copies(cluster)),
        30,
        "consumers of committed records get to the end",
    )
    return ledger


@pytest.mark.parametrize("how", ["killed", "expired", "frozen"])
@pytest.mark.parametrize("step", list(STEPS))
def test_coordinators_fail_after_a_step_and_every_transaction_ends(step: str, how: str) -> None:
    cluster = SimCluster(f"step {step}", spares=0)
    ledger = cluster.loop.run(story(cluster, step, how))
    assert cluster.history.failures == []
    assert cluster.loop.failures == []
    assert cluster.fired[f"controller {how} after {step}"], f"nobody took this step: {dict(cluster.steps)}"
    logs = [settled(one)[0] for one in copies(cluster)]
    assert all(log == logs[0] for log in logs), "a transaction is everywhere or nowhere"
    for number, committed in ledger.ended.items():
        assert logs[0][number] <= 1
        if committed is not None:
            assert logs[0][number] == committed, f"transaction {number} was {'committed' if committed else 'aborted'}"
    assert sum(map(bool, ledger.ended.values())) >= TRANSACTIONS // 2
