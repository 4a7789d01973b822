"""CreatePartitions: grow a topic, or with our tag `allow_shrink` shrink it (KIP-253).

Versions 0 to 3. The controller does all of it and answers when the new generation is published. Only the controller
answers; while it is a node that clients cannot see, the broker they were sent to hands the request on.
"""

from __future__ import annotations

from broker import admin
from broker.api import RequestContext, handles
from protocol.apis.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from protocol.errors import ErrorCode, KafkaError


@handles(CreatePartitionsRequest, versions="0-3")
async def create_partitions(ctx: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """Let the active controller decide, here or elsewhere."""
    try:
        return await admin.at_controller(
            ctx.services,
            request,
            lambda controller: controller.create_partitions(request),
            timeout_ms=request.timeout_ms,
        )
    except KafkaError as error:
        return refuse_all(request, error.code, error.message)


def refuse_all(request: CreatePartitionsRequest, code: ErrorCode, message: str) -> CreatePartitionsResponse:
    """The same error for every topic."""
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)
            for topic in request.topics
        ]
    )
