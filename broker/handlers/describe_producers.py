"""DescribeProducers: describe the producers of a partition and their open transactions (KIP-664).

Version 0. Every replica answers from its own log, not only the leader. An operator finds a hanging transaction by it:
the offset at which it began, and the coordinator epoch of the producer's last ended transaction.
"""

from __future__ import annotations

from functools import partial

from anabranch.broker.administration import topic_creation
from anabranch.broker.dispatch.auth_helper import authorize
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.storage.producer_state import ProducerEntry
from anabranch.broker.tasks.yield_budget import YieldBudget
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from anabranch.protocol.errors import ErrorCode, KafkaError


@handles(DescribeProducersRequest, versions="0")
async def describe_producers(ctx: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """Describe each partition separately."""
    turns = YieldBudget()
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=await turns.map(topic.partition_indexes, partial(describe, ctx, topic.name)),
            )
            for topic in request.topics
        ]
    )


def describe(ctx: RequestContext, topic: str, index: int) -> PartitionResponse:
    """Return the row of one partition."""
    try:
        topic_creation.check_topic_name(topic)
        authorize(ctx, Operation.READ, ResourceType.TOPIC, topic)
        partition = ctx.services.replicas.partition(topic, index)
    except KafkaError as error:
        return PartitionResponse(
            partition_index=index, error_code=error.code, error_message=error.message or None, active_producers=[]
        )
    return PartitionResponse(
        partition_index=index,
        error_code=ErrorCode.NONE,
        active_producers=[state_of(entry) for entry in partition.log.producers.entries],
    )


def state_of(entry: ProducerEntry) -> ProducerState:
    """Return the row of one producer."""
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp_ms,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.transaction_start,
    )
