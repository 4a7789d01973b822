"""A story of transactions of version 2, told by a client that knows only frames; and what Kafka 4.1.1 answered to it.

    python -m tests.broker.coordinators.version_2_story HOST:PORT     tells it to any broker, and prints the answers

Producer ids are left out, and epochs are those of the answers: the story begins with a transactional id that is new.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from anabranch.clients.connection import Connection
from anabranch.protocol.apis.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from anabranch.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from anabranch.protocol.apis.describe_transactions import DescribeTransactionsRequest
from anabranch.protocol.apis.end_txn import EndTxnRequest
from anabranch.protocol.apis.find_coordinator import FindCoordinatorRequest
from anabranch.protocol.apis.init_producer_id import InitProducerIdRequest
from anabranch.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from anabranch.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.records.batch_builder import BatchBuilder

FILE: Final = Path(__file__).with_name("version_2_story.txt")
"""What Kafka 4.1.1 answered."""
TOPIC: Final = "tx"
PASSING: Final = (14, 15, 16)
PAUSE_S: Final = 0.02
Line = tuple[str, Any]


class Teller:
    """The client, and what it was answered so far."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._connection: Connection | None = None
        self.lines: list[str] = []
        self.name, self.id = "", -1

    def note(self, what: str, *answer: Any) -> None:
        self.lines.append(f"{self.name}: {what}: {' '.join(map(str, answer))}")

    async def ask(self, request: Any, version: int) -> Any:
        if self._connection is None or self._connection.closed:
            self._connection = await Connection.open(*self._address, client_id="teller", software_name="teller")
        return await self._connection.call(request, version=version)

    async def begin(self) -> None:
        """Have a topic and coordinators."""
        topic = CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1, assignments=[], configs=[])
        await self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30000), 7)
        for kind, key in ((1, "x"), (0, "g")):
            find = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            while (await self.ask(find, 4)).coordinators[0].error_code:  # noqa: ASYNC110 a broker tells nobody
                await asyncio.sleep(PAUSE_S)

    async def init(
        self, *, known: tuple[int, int] = (-1, -1), timeout_ms: int = 60000, wait: bool = True, what: str = "init"
    ) -> int:
        """An epoch. With `wait` it is asked again while the last transaction is being completed."""
        request = InitProducerIdRequest(
            transactional_id=self.name,
            transaction_timeout_ms=timeout_ms,
            producer_id=known[0],
            producer_epoch=known[1],
        )
        while True:
            answer = await self.ask(request, 5)
            code = answer.error_code
            if code in PASSING or (wait and code == ErrorCode.CONCURRENT_TRANSACTIONS):
                await asyncio.sleep(PAUSE_S)
                continue
            if code == ErrorCode.NONE:
                self.id = answer.producer_id
            self.note(what, ErrorCode(code).name, answer.producer_epoch)
            return int(answer.producer_epoch)

    async def produce(self, epoch: int, sequence: int, *, version: int = 12, partition: int = 0) -> None:
        builder = BatchBuilder()
        builder.append(b"k", b"v", (), 1_700_000_000_000)
        records = bytes(
            builder.build(producer_id=self.id, producer_epoch=epoch, base_sequence=sequence, transactional=True)
        )
        data = PartitionProduceData(index=partition, records=records)
        request = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=10000,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])],
        )
        row = (await self.ask(request, version)).responses[0].partition_responses[0]
        self.note(f"Produce v{version} epoch {epoch} sequence {sequence}", ErrorCode(row.error_code).name)

    async def offsets(self, epoch: int, *, version: int = 5) -> None:
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id="g",
            producer_id=self.id,
            producer_epoch=epoch,
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
        )
        row = (await self.ask(request, version)).topics[0].partitions[0]
        self.note(f"TxnOffsetCommit v{version} epoch {epoch}", ErrorCode(row.error_code).name)

    async def add(self, epoch: int) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
        )
        answer = await self.ask(request, 3)
        code = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        self.note(f"AddPartitionsToTxn v3 epoch {epoch}", ErrorCode(code).name)

    async def end(
        self, epoch: int, commit: bool = True, *, version: int = 5, wait: bool = False, producer_id: int | None = None
    ) -> int:
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.id if producer_id is None else producer_id,
            producer_epoch=epoch,
            committed=commit,
        )
        answer = await self.ask(request, version)
        while wait and answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
            await asyncio.sleep(PAUSE_S)
            answer = await self.ask(request, version)
        what = "commit" if commit else "abort"
        self.note(f"EndTxn v{version} {what} epoch {epoch}", ErrorCode(answer.error_code).name, answer.producer_epoch)
        return int(answer.producer_epoch)

    async def rest(self, state: str = "") -> int:
        """Wait until the transaction is decided and its markers are written, or until it is in a state."""
        while True:
            answer = await self.ask(DescribeTransactionsRequest(transactional_ids=[self.name]), 0)
            one = answer.transaction_states[0]
            if one.transaction_state == state or (not state and not one.transaction_state.startswith("Prepare")):
                break
            await asyncio.sleep(PAUSE_S)
        self.note("state", one.transaction_state, one.producer_epoch, sorted(row.topic for row in one.topics))
        return int(one.producer_epoch)


async def ends(t: Teller) -> None:
    """Ends, repeated and wrong ones, and such of nothing."""
    e = await t.init()
    await t.produce(e, 0)
    await t.rest()
    await t.produce(e, 1)
    await t.end(e)
    await t.rest()
    await t.end(e)
    await t.end(e, False)
    await t.produce(e, 2)
    await t.end(e + 5)
    await t.end(e + 1, producer_id=t.id + 1000)
    await t.end(e + 1)
    await t.end(e + 1, False)
    await t.rest()
    await t.end(e + 1, False)
    await t.end(e + 1)
    await t.produce(e + 2, 3)
    await t.produce(e + 2, 0)
    await t.produce(e + 9, 0)
    await t.offsets(e + 2)
    await t.rest()
    await t.end(e + 2)
    await t.produce(e + 3, 0)
    await t.end(e + 3, False, wait=True)
    await t.rest()
    await t.offsets(e + 3)
    await t.offsets(e + 4)


async def mixed(t: Teller) -> None:
    """Both versions of transactions, by one producer."""
    e = await t.init()
    await t.produce(e, 0)
    await t.end(e, version=4)
    await t.rest()
    await t.end(e, version=4)
    await t.end(e)
    await t.end(e, False)
    e = await t.rest()
    await t.produce(e, 0, version=11)
    await t.produce(e, 0, version=10)
    await t.add(e)
    await t.produce(e, 0, version=11)
    await t.produce(e, 0, partition=1)
    await t.offsets(e, version=4)
    await t.offsets(e, version=3)
    await t.end(e)
    await t.rest()


async def fenced(t: Teller) -> None:
    """A second producer starts during a transaction; then the first one continues."""
    e = await t.init()
    mine = t.id
    await t.produce(e, 0)
    await t.init(wait=False)
    await t.rest()
    after = await t.init()
    await t.produce(e, 1)
    await t.end(e)
    await t.end(e + 1)
    after = await t.init(known=(mine, after), what="init again")
    await t.init(known=(mine, after - 1), what="init repeated")
    await t.init(known=(mine, after - 2), what="init with an epoch that is too old")
    await t.produce(after, 0)
    await t.end(after)
    await t.rest()
    await t.init(known=(mine, after), what="init with the epoch before the end")
    await t.init(known=(mine, after + 1), what="init with the epoch behind the end")


async def fenced_of_version_0(t: Teller) -> None:
    """Fence a producer that sends Produce v11, as clients without transactions version 2."""
    e = await t.init()
    await t.add(e)
    await t.produce(e, 0, version=11)
    await t.init(wait=False)
    await t.rest()
    await t.init()


async def late(t: Teller) -> None:
    """A producer exceeds its transaction timeout."""
    e = await t.init(timeout_ms=200)
    mine = t.id
    await t.produce(e, 0)
    await t.rest("CompleteAbort")
    await t.end(e)
    await t.produce(e, 1)
    await t.init(known=(mine, e), what="init with the epoch that was taken")


async def unknown(t: Teller) -> None:
    """An unknown transactional id."""
    t.id = 1_000_000
    await t.produce(0, 0)
    await t.offsets(0)
    await t.end(0)


CHAPTERS: Final[tuple[Callable[[Teller], Awaitable[None]], ...]] = (
    ends,
    mixed,
    fenced,
    fenced_of_version_0,
    late,
    unknown,
)


async def tell(host: str, port: int) -> list[str]:
    """All chapters; the answers, a line each."""
    teller = Teller(host, port)
    await teller.begin()
    for chapter in CHAPTERS:
        teller.name = chapter.__name__
        await chapter(teller)
    return teller.lines


if __name__ == "__main__":
    where, _, at = sys.argv[1].rpartition(":")
    print("\n".join(asyncio.run(tell(where, int(at)))))
