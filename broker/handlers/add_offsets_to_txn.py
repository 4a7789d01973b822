"""AddOffsetsToTxn: add the offsets of a group to a transaction (KIP-98).

Versions 0 to 4. It adds the group's partition of `__consumer_offsets`, whether or not that exists yet.
"""

from __future__ import annotations

from typing import Final

from anabranch.broker.coordinators.transactions.transaction_requests import Producer
from anabranch.broker.dispatch.auth_helper import authorize
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.handlers.fencing import code_for
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.hashing import partition_of_group
from anabranch.protocol.internal_topics import CONSUMER_OFFSETS_TOPIC

FIRST_VERSION_WITH_PRODUCER_FENCED: Final = 2


@handles(AddOffsetsToTxnRequest, versions="0-4")
async def add_offsets_to_txn(ctx: RequestContext, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    """Add the group's partition."""
    topic = ctx.services.metadata.topic(CONSUMER_OFFSETS_TOPIC)
    count = ctx.services.settings.offsets_topic_num_partitions if topic is None else len(topic.partitions)
    partition = (CONSUMER_OFFSETS_TOPIC, partition_of_group(request.group_id, count))
    producer = Producer(request.producer_id, request.producer_epoch)
    try:
        authorize(ctx, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        authorize(ctx, Operation.READ, ResourceType.GROUP, request.group_id)
        await ctx.services.transactions.add_partitions(request.transactional_id, producer, [partition])
    except KafkaError as error:
        code = code_for(error, knows_fenced=ctx.version >= FIRST_VERSION_WITH_PRODUCER_FENCED)
        return AddOffsetsToTxnResponse(error_code=code)
    return AddOffsetsToTxnResponse(error_code=ErrorCode.NONE)
