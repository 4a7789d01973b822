"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn, WriteTxnMarkers, and descriptions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anabranch.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from anabranch.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from anabranch.protocol.apis.describe_producers import DescribeProducersRequest
from anabranch.protocol.apis.describe_producers import TopicRequest as ProducersOf
from anabranch.protocol.apis.describe_transactions import DescribeTransactionsRequest
from anabranch.protocol.apis.end_txn import EndTxnRequest
from anabranch.protocol.apis.find_coordinator import FindCoordinatorRequest
from anabranch.protocol.apis.init_producer_id import InitProducerIdRequest
from anabranch.protocol.apis.list_transactions import ListTransactionsRequest
from anabranch.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from anabranch.protocol.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.differential.case import Run, batch, case, produce
from tests.differential.corpus.consume import fetch, id_of
from tests.differential.corpus.groups import coordinator
from tests.differential.corpus.groups import fetch as fetch_offsets
from tests.differential.corpus.members import Member
from tests.differential.corpus.offsets import offsets

BUSY = (15, 14, 51)  # no coordinator yet, loading, the end of the last transaction is still being written


@dataclass(slots=True)
class Producer:
    """A transactional producer."""

    transactional_id: str
    id: int
    epoch: int

    @classmethod
    async def made(cls, run: Run, transactional_id: str, *, timeout_ms: int = 60000) -> Producer:
        """InitProducerId, not compared."""
        await run.settled(
            FindCoordinatorRequest(coordinator_keys=[transactional_id], key_type=1),
            lambda answer: answer.coordinators[0].error_code == 0,
        )
        answer = await run.settled(
            init(transactional_id, timeout_ms=timeout_ms), lambda answer: answer.error_code == 0, version=5
        )
        return cls(transactional_id, answer.producer_id, answer.producer_epoch)

    @property
    def identity(self) -> dict[str, Any]:
        """The fields that name it in its requests."""
        return {"transactional_id": self.transactional_id, "producer_id": self.id, "producer_epoch": self.epoch}

    def add(self, *topics: tuple[str, list[int]], verify_only: bool = False) -> AddPartitionsToTxnRequest:
        """In the form of every version."""
        rows = [AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics]
        return AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    **self.identity,
                    verify_only=verify_only,
                    topics=rows,
                )
            ],
            **{f"v3_and_below_{name}": one for name, one in self.identity.items()},
            v3_and_below_topics=rows,
        )

    def end(self, *, committed: bool = True) -> EndTxnRequest:
        """Commit or abort."""
        return EndTxnRequest(
            **self.identity,
            committed=committed,
        )

    def group(self, group: str) -> AddOffsetsToTxnRequest:
        """The offsets of a group belong to the transaction."""
        return AddOffsetsToTxnRequest(
            **self.identity,
            group_id=group,
        )

    def offsets(
        self, group: str, name: str, *rows: tuple[int, int], generation: int = -1, member: str = "", metadata: str = ""
    ) -> TxnOffsetCommitRequest:
        """Commit offsets inside the transaction."""
        partitions = [
            TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata=metadata)
            for index, offset in rows
        ]
        return TxnOffsetCommitRequest(
            **self.identity,
            group_id=group,
            generation_id=generation,
            member_id=member,
            topics=[TxnOffsetCommitRequestTopic(name=name, partitions=partitions)],
        )

    def records(self, sequence: int, *values: bytes) -> bytes:
        """A batch of the transaction."""
        return batch(*values, producer=(self.id, self.epoch, sequence), transactional=True)

    async def send(self, run: Run, name: str, sequence: int, *values: bytes) -> None:
        """Produce, compared."""
        await run.ask(produce(name, self.records(sequence, *values), transactional_id=self.transactional_id))


def init(
    transactional_id: str | None, *, timeout_ms: int = 60000, producer_id: int = -1, epoch: int = -1
) -> InitProducerIdRequest:
    """A producer id."""
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
    )


def by_id(*names: str) -> DescribeTransactionsRequest:
    """The state of transactions."""
    return DescribeTransactionsRequest(transactional_ids=list(names))


def done(answer: object) -> bool:
    """The markers are written."""
    return all("Prepare" not in one.transaction_state for one in answer.transaction_states)  # type: ignore[attr-defined]


@case("InitProducerId")
async def idempotent(run: Run) -> None:
    await run.until(init(None), lambda answer: answer.error_code not in BUSY)
    await run.ask(init(None, timeout_ms=0))
    await run.ask(init(None, timeout_ms=-1))
    await run.ask(init(""))


@case("InitProducerId")
async def transactional(run: Run) -> None:
    await Producer.made(run, run.name("other"))
    first = await run.ask(init(run.name("x")))
    second = await run.until(init(run.name("x")), lambda answer: answer.error_code not in BUSY)
    await run.ask(init(run.name("x"), timeout_ms=0))
    await run.ask(init(run.name("x"), timeout_ms=-1))
    await run.ask(init(run.name("x"), timeout_ms=10_000_000))
    if run.version >= 3:
        await run.ask(init(run.name("x"), producer_id=second.producer_id, epoch=second.producer_epoch))
        await run.ask(init(run.name("x"), producer_id=first.producer_id, epoch=first.producer_epoch))
        await run.ask(init(run.name("x"), producer_id=first.producer_id + 1000, epoch=0))
        await run.ask(init(run.name("x"), producer_id=first.producer_id))
        await run.ask(init(run.name("x"), epoch=3))
        await run.ask(init(run.name("new"), producer_id=first.producer_id, epoch=0))
        await run.ask(init(None, producer_id=first.producer_id, epoch=0))


@case("InitProducerId")
async def in_the_middle_of_a_transaction(run: Run) -> None:
    await run.create(name := run.name())
    producer = await Producer.made(run, run.name("x"))
    await run.prepare(producer.add((name, [0])), version=3)
    await run.prepare(produce(name, producer.records(0, b"a"), transactional_id=producer.transactional_id))
    await run.ask(init(producer.transactional_id))
    await run.until(init(producer.transactional_id), lambda answer: answer.error_code not in BUSY)
    await run.ask(produce(name, producer.records(1, b"b"), transactional_id=producer.transactional_id))
    await run.ask(fetch(name, await id_of(run, name), (0, 0), isolation_level=1))


@case("AddPartitionsToTxn", "0-3")
async def added(run: Run) -> None:
    await run.create(name := run.name(), partitions=2)
    producer = await Producer.made(run, run.name("x"))
    await run.ask(producer.add((name, [0])))
    await run.ask(producer.add((name, [0, 1])))
    await run.ask(by_id(producer.transactional_id))
    await run.ask(producer.add((run.name("none"), [0]), (name, [1])))
    await run.ask(producer.add((name, [7])))
    await run.ask(producer.add())
    for wrong in (
        Producer(producer.transactional_id, producer.id, producer.epoch + 1),
        Producer(producer.transactional_id, producer.id + 1000, producer.epoch),
        Producer(run.name("stranger"), producer.id, producer.epoch),
        Producer("", producer.id, producer.epoch),
    ):
        await run.ask(wrong.add((name, [0])))


@case("AddPartitionsToTxn", "4-5")
async def added_in_bulk(run: Run) -> None:
    await run.create(name := run.name(), partitions=2)
    producer = await Producer.made(run, run.name("x"))
    await run.ask(producer.add((name, [0]), verify_only=True))
    await run.ask(producer.add((name, [0])))
    await run.ask(producer.add((name, [0, 1]), verify_only=True))
    await run.ask(producer.add((run.name("none"), [0]), (name, [1])))
    both = producer.add((name, [0]))
    both.transactions += Producer(run.name("stranger"), 5, 0).add((name, [0])).transactions
    await run.ask(both)


@case("EndTxn")
async def committed_and_aborted(run: Run) -> None:
    await run.create(name := run.name())
    topic_id = await id_of(run, name)
    producer = await Producer.made(run, run.name("x"))
    await run.ask(producer.end())  # nothing is open
    sequence = 0
    for committed in (True, False):
        await run.prepare(producer.add((name, [0])), version=3)
        await producer.send(run, name, sequence, b"a", b"b")
        await run.ask(fetch(name, topic_id, (0, 0), isolation_level=1))
        await run.ask(offsets(name, (0, -1), isolation=1))
        await run.ask(producer.end(committed=committed))
        await run.until(producer.end(committed=committed), lambda answer: answer.error_code not in BUSY)
        await run.until(by_id(producer.transactional_id), done)
        await run.ask(producer.end(committed=not committed))
        sequence += 2
    await run.ask(fetch(name, topic_id, (0, 0), isolation_level=1))
    await run.ask(fetch(name, topic_id, (0, 0), isolation_level=0))
    await run.ask(fetch(name, topic_id, (0, 3), isolation_level=1))
    await run.ask(offsets(name, (0, -1), isolation=1))


@case("EndTxn")
async def refused_ends(run: Run) -> None:
    producer = await Producer.made(run, run.name("x"))
    for wrong in (
        Producer(producer.transactional_id, producer.id, producer.epoch + 1),
        Producer(producer.transactional_id, producer.id, producer.epoch - 1),
        Producer(producer.transactional_id, producer.id + 1000, producer.epoch),
        Producer(run.name("stranger"), producer.id, producer.epoch),
        Producer("", producer.id, producer.epoch),
    ):
        await run.ask(wrong.end())


@case("EndTxn")
async def two_producers(run: Run) -> None:
    """One is in the middle of its transaction while the other aborts: the first one's records hold up the second's."""
    await run.create(name := run.name())
    topic_id = await id_of(run, name)
    slow = await Producer.made(run, run.name("slow"))
    fast = await Producer.made(run, run.name("fast"))
    for producer in (slow, fast):
        await run.prepare(producer.add((name, [0])), version=3)
        await producer.send(run, name, 0, b"of " + producer.transactional_id.encode())
    await run.ask(fast.end(committed=False))
    await run.until(by_id(fast.transactional_id), done)
    await run.ask(fetch(name, topic_id, (0, 0), isolation_level=1))
    await run.ask(offsets(name, (0, -1), isolation=1))
    await run.ask(slow.end())
    await run.until(by_id(slow.transactional_id), done)
    await run.ask(fetch(name, topic_id, (0, 0), isolation_level=1))
    await run.ask(offsets(name, (0, -1), isolation=1))


@case("Produce", "3-11", alone=True)  # Kafka asks a coordinator about several, all as the first asks
async def in_a_transaction(run: Run) -> None:
    await run.create(name := run.name(), partitions=2)
    producer = await Producer.made(run, run.name("x"))
    await producer.send(run, name, 0, b"not added yet")
    await run.prepare(producer.add((name, [0])), version=3)
    await producer.send(run, name, 0, b"a")
    await producer.send(run, name, 0, b"a")
    await producer.send(run, name, 2, b"gap")
    await run.ask(produce(name, producer.records(0, b"a"), partition=1, transactional_id=producer.transactional_id))
    plain = batch(b"a", producer=(producer.id, producer.epoch, 1))
    await run.ask(produce(name, plain, transactional_id=producer.transactional_id))
    await run.ask(produce(name, batch(b"a"), transactional_id=producer.transactional_id))
    fenced = Producer(producer.transactional_id, producer.id, producer.epoch - 1)
    await fenced.send(run, name, 1, b"b")


@case("AddOffsetsToTxn")
async def offsets_added(run: Run) -> None:
    producer = await Producer.made(run, run.name("x"))
    await coordinator(run, run.name("g"))
    await run.ask(producer.group(run.name("g")))
    await run.ask(producer.group(""))
    await run.ask(by_id(producer.transactional_id))
    await run.ask(Producer(producer.transactional_id, producer.id, producer.epoch + 1).group(run.name("g")))
    await run.ask(Producer(producer.transactional_id, producer.id + 1000, 0).group(run.name("g")))
    await run.ask(Producer(run.name("stranger"), producer.id, 0).group(run.name("g")))


@case("TxnOffsetCommit")
async def offsets_in_a_transaction(run: Run) -> None:
    await run.create(name := run.name(), partitions=2)
    group = run.name("g")
    await coordinator(run, group)
    producer = await Producer.made(run, run.name("x"))
    for committed in (True, False):
        await run.prepare(producer.group(group), version=3)
        await run.ask(producer.offsets(group, name, (0, 10 + committed), metadata="note"))
        await run.ask(fetch_offsets(run, group, (name, [0, 1])))
        unstable = fetch_offsets(run, group, (name, [0, 1]))
        unstable.require_stable = True
        await run.ask(unstable)
        await run.ask(producer.end(committed=committed))
        await run.until(by_id(producer.transactional_id), done)
        await run.ask(fetch_offsets(run, group, (name, [0, 1])))
        await run.ask(unstable)


@case("TxnOffsetCommit")
async def refused_offsets(run: Run) -> None:
    await run.create(name := run.name())
    group = run.name("g")
    member = await Member.joined(run, group)
    producer = await Producer.made(run, run.name("x"))
    await run.prepare(producer.group(group), version=3)
    await run.ask(producer.offsets(group, run.name("none"), (0, 1)))
    await run.ask(producer.offsets(group, name, (7, 1)))
    await run.ask(producer.offsets("", name, (0, 1)))
    await run.ask(producer.offsets(group, name, (0, 1), metadata="x" * 5000))
    if run.version >= 3:
        await run.ask(producer.offsets(group, name, (0, 1), generation=member.generation, member=member.id))
        await run.ask(producer.offsets(group, name, (0, 1), generation=member.generation + 1, member=member.id))
        await run.ask(producer.offsets(group, name, (0, 1), generation=member.generation, member="stranger"))
        await run.ask(producer.offsets(group, name, (0, 1), generation=-1, member="stranger"))
    await run.ask(Producer(producer.transactional_id, producer.id, 77).offsets(group, name, (0, 1)))


@case("DescribeTransactions")
async def states(run: Run) -> None:
    await run.create(name := run.name(), partitions=2)
    producer = await Producer.made(run, run.name("x"), timeout_ms=30000)
    await run.ask(by_id(producer.transactional_id, run.name("none"), ""))
    await run.prepare(producer.add((name, [1, 0])), version=3)
    await run.ask(by_id(producer.transactional_id))
    await run.prepare(producer.end())
    await run.until(by_id(producer.transactional_id), done)
    await run.ask(by_id())
    await run.ask(by_id(producer.transactional_id, producer.transactional_id))


@case("ListTransactions")
async def listed(run: Run) -> None:
    await run.create(name := run.name())
    idle = await Producer.made(run, run.name("idle"))
    busy = await Producer.made(run, run.name("busy"))
    await run.prepare(busy.add((name, [0])), version=3)
    for states_, ids in (
        ([], []),
        (["Ongoing"], []),
        (["Empty"], []),
        (["Nonsense"], []),
        (["Ongoing", "Nonsense", "Empty"], []),
        ([], [busy.id]),
        ([], [busy.id, 2**40]),
        (["Empty"], [busy.id]),
        (["ongoing"], []),
    ):
        request = ListTransactionsRequest(state_filters=states_, producer_id_filters=ids)
        answer = await run.prepare(request)
        mine = run.name("")
        answer.transaction_states = sorted(
            (one for one in answer.transaction_states if one.transactional_id.startswith(mine)),
            key=lambda one: one.transactional_id,
        )
        run.record(request, None, answer)
    if run.version >= 1:
        for duration_ms in (0, 3_600_000):
            request = ListTransactionsRequest(
                state_filters=[], producer_id_filters=[busy.id, idle.id], duration_filter=duration_ms
            )
            await run.ask(request)


@case("DescribeProducers")
async def producers(run: Run) -> None:
    await run.create(name := run.name(), partitions=2)
    producer = await Producer.made(run, run.name("x"))
    asked = DescribeProducersRequest(topics=[ProducersOf(name=name, partition_indexes=[0, 1, 7])])
    await run.ask(asked)
    await run.prepare(producer.add((name, [0])), version=3)
    await producer.send(run, name, 0, b"a")
    await run.ask(asked)
    await run.prepare(producer.end())
    await run.until(by_id(producer.transactional_id), done)
    await run.ask(asked)
    await run.ask(
        DescribeProducersRequest(
            topics=[
                ProducersOf(name=run.name("none"), partition_indexes=[0]),
                ProducersOf(name="not a name", partition_indexes=[0]),
            ]
        )
    )
    await run.ask(DescribeProducersRequest(topics=[]))


def marker(
    producer_id: int,
    epoch: int,
    *topics: tuple[str, list[int]],
    commit: bool = True,
    coordinator_epoch: int = 0,
    version: int = 0,
) -> WritableTxnMarker:
    """A marker; `version` is that of the transaction."""
    rows = [WritableTxnMarkerTopic(name=one, partition_indexes=indexes) for one, indexes in topics]
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=rows,
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
    )


@case("WriteTxnMarkers", "2")
async def markers_of_each_version(run: Run) -> None:
    """The marker of a transaction of version 2 has a later epoch than its records."""
    await run.create(name := run.name())
    await Producer.made(run, run.name("x"))
    producer = await Producer.made(run, run.name("x"))
    await run.prepare(producer.add((name, [0])), version=3)
    await producer.send(run, name, 0, b"a")
    for version in (2, 1, 3):
        for more in (-1, 0, 1, 1):
            row = marker(producer.id, producer.epoch + more, (name, [0]), commit=False, version=version)
            await run.ask(WriteTxnMarkersRequest(markers=[row]))
    for version in (2, 0):
        row = marker(60_000_007, 0, (name, [0]), version=version)
        await run.ask(WriteTxnMarkersRequest(markers=[row]))
        offsets_row = marker(60_000_008, 0, ("__consumer_offsets", [0]), version=version)
        await run.ask(WriteTxnMarkersRequest(markers=[offsets_row, offsets_row]))
    await run.ask(fetch(name, await id_of(run, name), (0, 0)))


@case("WriteTxnMarkers")
async def markers(run: Run) -> None:
    await run.create(name := run.name())
    await run.append(name, batch(b"a", producer=(60_000_000, 3, 0)))

    async def write(*rows: WritableTxnMarker) -> None:
        await run.ask(WriteTxnMarkersRequest(markers=list(rows)))

    await write(marker(60_000_000, 3, (name, [0])))
    await write(marker(60_000_000, 2, (name, [0])))
    await write(marker(60_000_001, 0, (name, [0]), coordinator_epoch=5))
    await write(marker(60_000_001, 0, (name, [0]), coordinator_epoch=4))
    await write(marker(60_000_000, 4, (name, [7])), marker(60_000_002, 0, (run.name("none"), [0]), commit=False))
    await write()
    await run.ask(fetch(name, await id_of(run, name), (0, 0)))
