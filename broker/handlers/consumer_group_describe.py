"""ConsumerGroupDescribe: groups whose broker assigns (KIP-848).

Version 0. Kafka's brokers with ZooKeeper advertise this and have no such group: UNSUPPORTED_VERSION for each.
"""

from __future__ import annotations

from anabranch.broker.api import RequestContext, handles
from anabranch.protocol.apis.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from anabranch.protocol.errors import ErrorCode


@handles(ConsumerGroupDescribeRequest, versions="0")
async def consumer_group_describe(
    ctx: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Refuse each."""
    return ConsumerGroupDescribeResponse(
        groups=[
            DescribedGroup(
                error_code=ErrorCode.UNSUPPORTED_VERSION,
                group_id=group_id,
                group_state="",
                group_epoch=0,
                assignment_epoch=0,
                assignor_name="",
                members=[],
            )
            for group_id in request.group_ids
        ]
    )
