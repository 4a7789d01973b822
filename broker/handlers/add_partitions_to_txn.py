"""AddPartitionsToTxn: add partitions to a transaction, or verify that they are in it (KIP-98, KIP-890).

Versions 0 to 5. Clients send one transaction (v0 to v3). Brokers send many (from v4), to verify a partition, or to add
it for a producer of transaction version 2. Either all partitions of a transaction are added or none: a missing one has
its own error, the others OPERATION_NOT_ATTEMPTED. Every error is per partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from anabranch.broker.coordinators.transactions.transaction_requests import Producer
from anabranch.broker.coordinators.transactions.transactional_id import TopicPartition
from anabranch.broker.dispatch.auth_helper import authorize_broker, is_authorized
from anabranch.broker.dispatch.request_context import INTERNAL_TOPICS, RequestContext, handles
from anabranch.broker.handlers.fencing import code_for
from anabranch.broker.tasks.yield_budget import ELEMENTS_PER_YIELD
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from anabranch.protocol.errors import ErrorCode, KafkaError

FIRST_VERSION_OF_BROKERS: Final = 4
FIRST_VERSION_WITH_PRODUCER_FENCED: Final = 2

Errors = Mapping[TopicPartition, ErrorCode]


@handles(AddPartitionsToTxnRequest, versions="0-5")
async def add_partitions_to_txn(ctx: RequestContext, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    """Add to, or verify, each transaction."""
    if ctx.version < FIRST_VERSION_OF_BROKERS:
        transaction = only_transaction(request)
        rows = refused_rows(ctx, transaction) or await answer(ctx, transaction)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows)
    authorize_broker(ctx)
    results: list[AddPartitionsToTxnResult] = []
    for first in range(0, len(request.transactions), ELEMENTS_PER_YIELD):
        step = request.transactions[first : first + ELEMENTS_PER_YIELD]
        answers = await asyncio.gather(*(answer(ctx, transaction) for transaction in step))
        results += [
            AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=rows)
            for transaction, rows in zip(step, answers, strict=True)
        ]
    return AddPartitionsToTxnResponse(results_by_transaction=results)


def only_transaction(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    """Return a client's request in the structure of brokers."""
    return AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


def refused_rows(
    ctx: RequestContext, transaction: AddPartitionsToTxnTransaction
) -> list[AddPartitionsToTxnTopicResult]:
    """Return the rows of a client's transaction if it is not fully authorized; empty if it is."""
    partitions = [(topic.name, index) for topic in transaction.topics for index in topic.partitions]
    if not is_authorized(ctx, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id):
        return rows_of(transaction.topics, dict.fromkeys(partitions, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    hidden = {
        topic.name
        for topic in transaction.topics
        if topic.name in INTERNAL_TOPICS or not is_authorized(ctx, Operation.WRITE, ResourceType.TOPIC, topic.name)
    }
    if not hidden:
        return []
    unknown = {one for one in partitions if ctx.services.metadata.partition(*one) is None}
    codes = dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED)
    codes |= dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    codes |= {one: ErrorCode.TOPIC_AUTHORIZATION_FAILED for one in partitions if one[0] in hidden}
    return rows_of(transaction.topics, codes)


async def answer(
    ctx: RequestContext, transaction: AddPartitionsToTxnTransaction
) -> list[AddPartitionsToTxnTopicResult]:
    """Return the rows of one transaction."""
    partitions = [(topic.name, index) for topic in transaction.topics for index in topic.partitions]
    unknown = {one for one in partitions if ctx.services.metadata.partition(*one) is None}
    if unknown:
        refused = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
        return rows_of(transaction.topics, {one: refused[one not in unknown] for one in partitions})
    try:
        errors = await outcome(ctx, transaction, partitions)
    except KafkaError as error:
        code = code_for(error, knows_fenced=ctx.version >= FIRST_VERSION_WITH_PRODUCER_FENCED)
        errors = dict.fromkeys(partitions, code)
    return rows_of(transaction.topics, errors)


async def outcome(
    ctx: RequestContext, transaction: AddPartitionsToTxnTransaction, partitions: Iterable[TopicPartition]
) -> Errors:
    """Return the coordinator's result: partition -> error. Raises KafkaError."""
    producer = Producer(transaction.producer_id, transaction.producer_epoch)
    if not transaction.verify_only:
        await ctx.services.transactions.add_partitions(
            transaction.transactional_id,
            producer,
            partitions,
            client_version=2 if ctx.version >= FIRST_VERSION_OF_BROKERS else 0,
        )
        return dict.fromkeys(partitions, ErrorCode.NONE)
    members = ctx.services.transactions.members(transaction.transactional_id, producer)
    return {one: ErrorCode.NONE if one in members else ErrorCode.TRANSACTION_ABORTABLE for one in partitions}


def rows_of(topics: Iterable[AddPartitionsToTxnTopic], errors: Errors) -> list[AddPartitionsToTxnTopicResult]:
    """Return the rows of the response, in the order of the request."""
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=errors[topic.name, index])
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
