"""Refusals of transactional producers, and between coordinators."""

from __future__ import annotations

from typing import Any

from anabranch.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from anabranch.protocol.apis.describe_transactions import DescribeTransactionsRequest
from anabranch.protocol.apis.end_txn import EndTxnRequest
from anabranch.protocol.apis.find_coordinator import FindCoordinatorRequest
from anabranch.protocol.apis.init_producer_id import InitProducerIdRequest
from anabranch.protocol.apis.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from anabranch.protocol.errors import ErrorCode
from tests.contracts.error_cases.data import batch, produce
from tests.contracts.error_codes import World, case

TIMEOUT_MS = 60_000
WAITING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


async def coordinator(world: World, transactional_id: str) -> int:
    """The node that coordinates a transactional id."""
    while True:
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id])
        found = (await world.call(request)).coordinators[0]
        if found.error_code == ErrorCode.NONE:
            return int(found.node_id)


async def producer(world: World) -> tuple[str, int, int, int]:
    """A transactional id with its coordinator, producer id and epoch."""
    name = world.fresh()
    at = await coordinator(world, name)
    while True:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=TIMEOUT_MS)
        answer = await world.call(request, at=at)
        if answer.error_code not in WAITING:
            assert answer.error_code == ErrorCode.NONE, answer
            return name, at, answer.producer_id, answer.producer_epoch


def adding(
    name: str, producer_id: int, epoch: int, topics: dict[str, list[int]], *, verify: bool = False
) -> AddPartitionsToTxnRequest:
    rows = [AddPartitionsToTxnTopic(name=topic, partitions=indexes) for topic, indexes in topics.items()]
    if verify:
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=name, producer_id=producer_id, producer_epoch=epoch, verify_only=True, topics=rows
        )
        return AddPartitionsToTxnRequest(transactions=[transaction])
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=rows,
    )


def ending(name: str, producer_id: int, epoch: int) -> EndTxnRequest:
    return EndTxnRequest(transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=True)


@case(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
async def init_with_a_long_transaction_timeout(world: World) -> Any:
    """InitProducerId with a timeout above transaction.max.timeout.ms."""
    name, at, _, _ = await producer(world)
    return await world.call(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=10**9), at=at)


@case(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
async def end_the_transaction_of_an_unknown_producer(world: World) -> Any:
    """EndTxn with a producer id that does not belong to the transactional id."""
    name, at, producer_id, epoch = await producer(world)
    return await world.call(ending(name, producer_id + 1, epoch), at=at)


@case(ErrorCode.PRODUCER_FENCED)
async def end_the_transaction_with_an_old_epoch(world: World) -> Any:
    """EndTxn v4 under an epoch that a later InitProducerId has ended."""
    name, at, producer_id, epoch = await producer(world)
    await world.call(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=TIMEOUT_MS), at=at)
    return await world.call(ending(name, producer_id, epoch), at=at)


@case(ErrorCode.INVALID_TXN_STATE)
async def end_without_a_transaction(world: World) -> Any:
    """EndTxn when no transaction is open."""
    name, at, producer_id, epoch = await producer(world)
    return await world.call(ending(name, producer_id, epoch), at=at)


@case(ErrorCode.CONCURRENT_TRANSACTIONS)
async def init_during_a_transaction(world: World) -> Any:
    """InitProducerId while a transaction is open: it is aborted first."""
    (name, at, producer_id, epoch), topic = await producer(world), await world.topic()
    added = await world.call(adding(name, producer_id, epoch, {topic: [0]}), at=at, version=3)
    assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == ErrorCode.NONE
    return await world.call(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=TIMEOUT_MS), at=at)


@case(ErrorCode.OPERATION_NOT_ATTEMPTED)
async def add_an_unknown_partition(world: World) -> Any:
    """AddPartitionsToTxn v3 of a partition that exists, beside one that does not."""
    (name, at, producer_id, epoch), topic = await producer(world), await world.topic()
    return await world.call(adding(name, producer_id, epoch, {topic: [0, 9]}), at=at, version=3)


@case(ErrorCode.TRANSACTION_ABORTABLE)
async def verify_a_partition_outside_the_transaction(world: World) -> Any:
    """AddPartitionsToTxn v5 of a broker that asks about a partition that is not in the transaction."""
    (name, at, producer_id, epoch), topic = await producer(world), await world.topic()
    return await world.call(adding(name, producer_id, epoch, {topic: [0]}, verify=True), at=at, version=5)


@case(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
async def describe_an_unknown_transactional_id(world: World) -> Any:
    """DescribeTransactions of an unknown transactional id."""
    name = world.fresh()
    _, at, _, _ = await producer(world)
    while True:
        at = await coordinator(world, name)
        answer = await world.call(DescribeTransactionsRequest(transactional_ids=[name]), at=at)
        if answer.transaction_states[0].error_code not in WAITING:
            return answer


@case(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
async def produce_without_a_transactional_id(world: World) -> Any:
    """Produce of a transactional batch without a transactional id."""
    records = batch(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    return await produce(world, await world.topic(), records)


@case(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
async def write_markers_of_a_fenced_coordinator(world: World) -> Any:
    """WriteTxnMarkers with a coordinator epoch below the one that was seen last."""
    topic = await world.topic()

    def marking(coordinator_epoch: int) -> WriteTxnMarkersRequest:
        marker = WritableTxnMarker(
            producer_id=7,
            producer_epoch=0,
            transaction_result=True,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
            coordinator_epoch=coordinator_epoch,
        )
        return WriteTxnMarkersRequest(markers=[marker])

    await world.call(marking(5), at=world.leader(topic))
    return await world.call(marking(4), at=world.leader(topic))
