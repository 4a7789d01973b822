"""Reads of committed records over TCP, while transactions, markers and leaders change (model-based).

Two brokers replicate one partition; the test writes batches and markers by hand, in any order that Hypothesis thinks
of, and moves the leadership. A reader of committed records polls the leader, another one the follower, in fetch
sessions as a consumer would. Each must see exactly what was committed, once, in order, and nothing from where the first
open transaction begins.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.clients.connection import Connection
from anabranch.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.protocol.errors import ErrorCode
from tests.broker.replication.replica_cluster import ReplicaCluster, batch, replica_cluster, topic_id_of, until
from tests.broker.storage.test_read_committed import committed
from tests.broker.transactions import coordinate_transactions, end, marker, produce, transactional_batch

READ_COMMITTED = 1
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["plain", "records", "records", "records", "commit", "abort", "poll", "move"]),
        st.integers(1, 3),
    ),
    min_size=5,
    max_size=40,
)


@dataclass
class Reader:
    """A consumer in a fetch session with one broker."""

    connection: Connection
    position: int = 0
    session: tuple[int, int] = (0, 0)
    got: list[str] = field(default_factory=list)
    """Values in the order in which they came."""

    async def poll(self, max_bytes: int = 300) -> bool:
        partition = FetchPartition(partition=0, fetch_offset=self.position, partition_max_bytes=max_bytes)
        topic = FetchTopic(topic="t", topic_id=topic_id_of("t"), partitions=[partition])
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            isolation_level=READ_COMMITTED,
            session_id=self.session[0],
            session_epoch=self.session[1],
            topics=[topic],
        )
        response = await self.connection.call(request)
        assert response.error_code == 0
        self.session = (response.session_id, self.session[1] + 1)
        rows = [row for topic in response.responses for row in topic.partitions]
        before = self.position
        for row in rows:
            assert row.error_code == 0, ErrorCode(row.error_code)
            records, self.position = committed(row.records, row.aborted_transactions, self.position)
            assert self.position <= row.last_stable_offset
            self.got += [value.decode() for _, value in records]
        return self.position > before


@dataclass
class Model:
    """What was sent, in the order of the log."""

    log: list[tuple[str | None, int, int]] = field(default_factory=list)
    """Per offset: (value, producer id or 0, number of its transaction); a marker has no value."""
    outcomes: dict[tuple[int, int], bool] = field(default_factory=dict)
    """(producer id, number of a transaction) -> whether it was committed, once it has ended."""
    current: dict[int, int] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)

    def stable(self) -> int:
        undecided = (
            offset
            for offset, (value, producer, number) in enumerate(self.log)
            if value is not None and producer and (producer, number) not in self.outcomes
        )
        return next(undecided, len(self.log))

    def visible(self, upto: int) -> list[str]:
        return [
            value
            for value, producer, number in self.log[:upto]
            if value is not None and (not producer or self.outcomes[producer, number])
        ]


async def play(cluster: ReplicaCluster, steps: list[tuple[str, int]]) -> None:
    await cluster.lead(1, replicas=(1, 2))
    for broker_id in (1, 2):
        await coordinate_transactions(cluster, broker_id, [("t", 0)])
    leader, model = 1, Model()
    readers = {one: Reader(await cluster[one].connect()) for one in (1, 2)}
    for count, (step, producer) in enumerate(steps):
        number = model.current.setdefault(producer, 0)
        match step:
            case "plain":
                row = await cluster.produce(leader, batch(f"plain {count}"))
                assert (row.error_code, row.base_offset) == (0, len(model.log))
                model.log.append((f"plain {count}", 0, 0))
            case "records":
                sequence = model.sequences.get(producer, 0)
                records = transactional_batch(f"{producer} {count}", producer=(producer, 0), sequence=sequence)
                row = await produce(cluster, records, broker_id=leader)
                assert (row.error_code, row.base_offset) == (0, len(model.log))
                model.sequences[producer] = sequence + 1
                model.log.append((f"{producer} {count}", producer, number))
            case "commit" | "abort":
                said = await end(cluster, marker(step == "commit", producer=(producer, 0)), broker_id=leader)
                assert set(said.values()) == {ErrorCode.NONE}
                model.log.append((None, producer, number))
                model.outcomes[producer, number] = step == "commit"
                model.current[producer] = number + 1
            case "move":
                leader = 3 - leader
                await cluster.lead(leader, isr=(1, 2))
            case "poll":
                for reader in readers.values():
                    await reader.poll()
        for reader in readers.values():
            assert reader.position <= model.stable(), "past an open transaction"
            assert reader.got == model.visible(reader.position)
    for one, reader in readers.items():
        await until(lambda one=one: cluster.partition(one).high_watermark == len(model.log))  # type: ignore[misc]
        while await reader.poll():
            pass
        assert reader.position == model.stable()
        assert reader.got == model.visible(model.stable())
        await reader.connection.close()


@settings(max_examples=25, deadline=None)
@given(STEPS)
async def test_read_committed_consumers_receive_exactly_the_committed_records(steps: list[tuple[str, int]]) -> None:
    async with (
        replica_cluster(2, replica_fetch_backoff_ms=5, replica_fetch_wait_max_ms=20) as cluster,
        asyncio.timeout(60),
    ):
        await play(cluster, steps)
