"""DescribeTransactions: describe the state and partitions of transactional ids (KIP-664).

Version 0. A missing id is TRANSACTIONAL_ID_NOT_FOUND, one with another coordinator NOT_COORDINATOR; the other fields of
such a row are zero.
"""

from __future__ import annotations

from functools import partial

from anabranch.broker.coordinators.transactions.transaction_journal import group_by_topic
from anabranch.broker.dispatch.auth_helper import authorize, is_authorized
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.tasks.yield_budget import YieldBudget
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from anabranch.protocol.errors import ErrorCode, KafkaError


@handles(DescribeTransactionsRequest, versions="0")
async def describe_transactions(
    ctx: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Describe each id."""
    return DescribeTransactionsResponse(
        transaction_states=await YieldBudget().map(request.transactional_ids, partial(describe, ctx))
    )


def describe(ctx: RequestContext, transactional_id: str) -> TransactionState:
    """Return the row of one id."""
    try:
        if transactional_id == "":
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id has at least one character")
        authorize(ctx, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        transaction = ctx.services.transactions.transaction(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id)
    except KafkaError as error:
        return TransactionState(
            error_code=error.code,
            transactional_id=transactional_id,
            transaction_state="",
            transaction_timeout_ms=0,
            transaction_start_time_ms=0,
            producer_id=0,
            producer_epoch=0,
            topics=[],
        )
    shown = [
        one
        for one in group_by_topic(transaction.partitions)
        if is_authorized(ctx, Operation.DESCRIBE, ResourceType.TOPIC, one.topic)
    ]
    return TransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=transaction.state.title,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[TopicData(topic=one.topic, partitions=one.partition_ids) for one in shown],
    )
