"""CreatePartitions: grow a topic or, with the tag `allow_shrink` (ours), shrink it (KIP-253).

Versions 0 to 3. The controller resizes, and answers when the new generation is published. If it is a node that clients
cannot see, brokers forward the request to it; otherwise only the controller answers.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING

from anabranch.broker.administration import topic_creation
from anabranch.broker.administration.mutation_charge import MutationCharge
from anabranch.broker.administration.shrink_check import groups_blocking_shrink
from anabranch.broker.dispatch.auth_helper import is_authorized, is_node
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.controller.controller import Controller

FIRST_VERSION_WITH_STRICT_QUOTA = 3


@handles(CreatePartitionsRequest, versions="0-3")
async def create_partitions(ctx: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """Forward the request to the active controller. Returns its response."""
    spending = MutationCharge(ctx, strict=ctx.version >= FIRST_VERSION_WITH_STRICT_QUOTA)
    refused = refused_rows(ctx, request)
    request = without(request, refused)
    if not request.validate_only:
        late = over_quota(ctx, request, spending)
        request, refused = without(request, late), [*late, *refused]
    try:
        response: CreatePartitionsResponse = await topic_creation.forward_to_controller(
            ctx.services,
            request,
            lambda controller: decide(ctx, controller, request),
            timeout_ms=request.timeout_ms,
        )
    except KafkaError as error:
        response = CreatePartitionsResponse(results=[refusal(topic.name, error) for topic in request.topics])
    response.throttle_time_ms = max(response.throttle_time_ms, spending.wait_ms)
    response.results = [*response.results, *refused]
    return response


async def decide(
    ctx: RequestContext, controller: Controller, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Return the response of this node's controller, after a check of the groups that block a shrink."""
    return await controller.create_partitions(request, await groups_blocking_shrink(ctx.services, controller, request))


def refused_rows(ctx: RequestContext, request: CreatePartitionsRequest) -> list[CreatePartitionsTopicResult]:
    """Return the rows of unauthorized topics; the controller refuses repeated ones."""
    if is_node(ctx):
        return []
    times = Counter(topic.name for topic in request.topics)
    error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "The topic authorization is failed.")
    return [
        refusal(name, error)
        for name, count in times.items()
        if count == 1 and not is_authorized(ctx, Operation.ALTER, ResourceType.TOPIC, name)
    ]


def without(request: CreatePartitionsRequest, refused: list[CreatePartitionsTopicResult]) -> CreatePartitionsRequest:
    """Return the request without the refused topics."""
    if not refused:
        return request
    names = {row.name for row in refused}
    return dataclasses.replace(request, topics=[topic for topic in request.topics if topic.name not in names])


def over_quota(
    ctx: RequestContext, request: CreatePartitionsRequest, spending: MutationCharge
) -> list[CreatePartitionsTopicResult]:
    """Return the rows of topics that exceed the mutation quota (KIP-599)."""
    refused = []
    for topic in request.topics:
        known = ctx.services.metadata.image.topics.get(topic.name)
        try:
            spending.spend(0 if known is None else abs(topic.count - len(known.partitions)))
        except KafkaError as error:
            refused.append(refusal(topic.name, error))
    return refused


def refusal(name: str, error: KafkaError) -> CreatePartitionsTopicResult:
    """Return the row of an unchanged topic."""
    return CreatePartitionsTopicResult(name=name, error_code=error.code, error_message=error.message)
