"""Requests of a transactional producer that arrive while a transition of its transaction is pending.

The transaction is held at its end: its partition has a marker of a later coordinator, so it refuses the one of the real
coordinator, which gives up. The transition to Complete stays pending for ever, and every request meets it.
"""

from __future__ import annotations

from typing import Final

from anabranch.protocol.apis.init_producer_id import InitProducerIdRequest
from anabranch.protocol.apis.list_transactions import ListTransactionsRequest
from anabranch.protocol.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.differential.case import Run, case, produce
from tests.differential.corpus.groups import coordinator
from tests.differential.corpus.transactions import Producer, by_id, done, init

LATER_COORDINATOR: Final = 1000
FIRST_VERSION_WITH_EPOCH_BUMP: Final = 5


async def completing(run: Run, *, committed: bool, version: int | None = None, group: str = "") -> Producer:
    """A producer whose transaction is decided and never completed, as it is after EndTxn of this version.

    From version 5 on, which is what a Kafka 4 is sent without `version`, the producer has the epoch of the answer.
    """
    if version is None:
        version = FIRST_VERSION_WITH_EPOCH_BUMP if run.kafka >= "4" else FIRST_VERSION_WITH_EPOCH_BUMP - 1
    await run.create(name := run.name(f"t-{committed}"), partitions=2)
    producer = await Producer.made(run, run.name(f"x-{committed}"))
    await run.prepare(producer.add((name, [0])), version=3)
    if group:
        await coordinator(run, group)
        await run.prepare(producer.group(group), version=3)
    marker = WritableTxnMarker(
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=[0])],
        coordinator_epoch=LATER_COORDINATOR,
    )
    written = await run.prepare(WriteTxnMarkersRequest(markers=[marker]), version=1)
    assert written.markers[0].topics[0].partitions[0].error_code == 0, written
    ended = await run.prepare(producer.end(committed=committed), version=version)
    assert ended.error_code == 0, ended
    if version >= FIRST_VERSION_WITH_EPOCH_BUMP:
        producer.id, producer.epoch = ended.producer_id, ended.producer_epoch
    return producer


def senders(producer: Producer) -> list[Producer]:
    """The producer itself, with epochs around its own, and a stranger with its transactional id."""
    name, id_, epoch = producer.transactional_id, producer.id, producer.epoch
    return [*(Producer(name, id_, epoch + more) for more in (0, -1, 1, -2)), Producer(name, id_ + 1000, epoch)]


@case("EndTxn")
async def ended_while_completing(run: Run) -> None:
    for committed in (True, False):
        producer = await completing(run, committed=committed, version=run.version)
        for sender in senders(producer):
            await run.ask(sender.end(committed=True))
            await run.ask(sender.end(committed=False))


@case("EndTxn")
async def ended_by_another_version_while_completing(run: Run) -> None:
    """The producer was restarted with another client library."""
    if run.kafka < "4":
        return
    before = FIRST_VERSION_WITH_EPOCH_BUMP if run.version < FIRST_VERSION_WITH_EPOCH_BUMP else 4
    for committed in (True, False):
        producer = await completing(run, committed=committed, version=before)
        for sender in senders(producer):
            await run.ask(sender.end(committed=True))
            await run.ask(sender.end(committed=False))


@case("InitProducerId", "3-5")
async def initialized_while_completing(run: Run) -> None:
    for committed in (True, False):
        producer = await completing(run, committed=committed)
        for sender in senders(producer):
            await run.ask(going_on(sender))
        await run.ask(init(producer.transactional_id))
        await run.ask(init(producer.transactional_id, timeout_ms=0))


def going_on(producer: Producer) -> InitProducerIdRequest:
    """The requests of a producer that continues after a failure."""
    return init(producer.transactional_id, producer_id=producer.id, epoch=producer.epoch)


@case("InitProducerId", "0-2")
async def begun_while_completing(run: Run) -> None:
    producer = await completing(run, committed=True)
    await run.ask(init(producer.transactional_id))


@case("AddPartitionsToTxn", "0-3")
async def added_while_completing(run: Run) -> None:
    for committed in (True, False):
        producer = await completing(run, committed=committed)
        for sender in senders(producer):
            await run.ask(sender.add((run.name(f"t-{committed}"), [0, 1])))
            await run.ask(sender.add())
            await run.ask(sender.add(("__consumer_offsets", [0])))
            await run.ask(sender.add((run.name("none"), [0]), (run.name(f"t-{committed}"), [0])))


@case("AddPartitionsToTxn", "4-5")
async def verified_while_completing(run: Run) -> None:
    for committed in (True, False):
        producer = await completing(run, committed=committed)
        for sender in senders(producer):
            for verify in (True, False):
                await run.ask(sender.add((run.name(f"t-{committed}"), [0, 1]), verify_only=verify))


@case("AddOffsetsToTxn")
async def group_added_while_completing(run: Run) -> None:
    await coordinator(run, group := run.name("g"))
    for committed in (True, False):
        producer = await completing(run, committed=committed)
        for sender in senders(producer):
            await run.ask(sender.group(group))


@case("TxnOffsetCommit")
async def offsets_while_completing(run: Run) -> None:
    await coordinator(run, group := run.name("g"))
    for committed in (True, False):
        producer = await completing(run, committed=committed)
        for sender in senders(producer):
            await run.ask(sender.offsets(group, run.name(f"t-{committed}"), (7, 1), (0, 1)))


@case("TxnOffsetCommit")
async def offsets_of_an_ended_transaction(run: Run) -> None:
    """The group is part of the transaction that is being completed."""
    group = run.name("g")
    producer = await completing(run, committed=True, group=group)
    for sender in senders(producer):
        await run.ask(sender.offsets(group, run.name("t-True"), (0, 1)))


@case("Produce", "9-12")
async def records_while_completing(run: Run) -> None:
    for committed in (True, False):
        producer = await completing(run, committed=committed)
        for sender in senders(producer):
            request = produce(
                run.name(f"t-{committed}"),
                sender.records(0, b"a"),
                partition=1,
                transactional_id=sender.transactional_id,
            )
            await run.ask(request)


@case("EndTxn", "5", kafka="4.0")
async def fenced_by_its_successor(run: Run) -> None:
    """The abort of a fence is of the cluster's version of transactions: the fenced producer may go on."""
    await run.create(name := run.name())
    for place, version in enumerate((None, 12)):
        producer = await Producer.made(run, run.name(f"x-{place}"))
        if version is None:
            await run.prepare(producer.add((name, [0])), version=3)
        else:
            request = produce(name, producer.records(0, b"a"), transactional_id=producer.transactional_id)
            await run.prepare(request, version=version)
        await run.ask(init(producer.transactional_id))
        await run.until(by_id(producer.transactional_id), done)
        await run.ask(producer.end())
        await run.ask(producer.end(committed=False))
        await run.ask(going_on(producer))
        await run.ask(producer.end(committed=False))
        await run.ask(init(producer.transactional_id))
        await run.ask(going_on(producer))


@case("DescribeTransactions")
async def described_while_completing(run: Run) -> None:
    for committed in (True, False):
        producer = await completing(run, committed=committed)
        await run.ask(by_id(producer.transactional_id))


@case("ListTransactions", "1-2")
async def listed_when_begun_anew(run: Run) -> None:
    """InitProducerId after a transaction: whether the start of that one is still known."""
    await run.create(name := run.name())
    producer = await Producer.made(run, run.name("x"))
    await run.prepare(producer.add((name, [0])), version=3)
    await run.prepare(producer.end(), version=4)
    await run.settled(by_id(producer.transactional_id), done)
    asked = ListTransactionsRequest(state_filters=[], producer_id_filters=[producer.id], duration_filter=3_600_000)
    await run.ask(asked)
    await Producer.made(run, producer.transactional_id)
    await run.ask(asked)


@case("ListTransactions")
async def listed_while_completing(run: Run) -> None:
    producers = [await completing(run, committed=committed) for committed in (True, False)]
    ids = [one.id for one in producers]
    for states in ([], ["PrepareCommit"], ["PrepareAbort"], ["Ongoing", "CompleteCommit"], ["PrepareEpochFence"]):
        await run.ask(ListTransactionsRequest(state_filters=states, producer_id_filters=ids))
