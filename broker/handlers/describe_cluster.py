"""DescribeCluster: describe the id, the controller and the brokers of the cluster (KIP-700).

Versions 0 to 2. v1 adds the endpoint type; only the type of brokers (1) is supported. v2 adds fenced brokers; there are
none, because the metadata contain live brokers only.
"""

from __future__ import annotations

from typing import Final

from anabranch.broker.administration.topic_creation import controller_to_show
from anabranch.broker.dispatch.auth_helper import OPERATIONS_NOT_REQUESTED, authorized_cluster_operations
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.handlers.metadata import wait_for_brokers
from anabranch.protocol.apis.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from anabranch.protocol.errors import ErrorCode

BROKERS: Final = 1
CONTROLLERS: Final = 2


@handles(DescribeClusterRequest, versions="0-2")
async def describe_cluster(ctx: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Answer from the metadata image."""
    services = ctx.services
    if request.endpoint_type != BROKERS:
        return error_response(request.endpoint_type)
    await wait_for_brokers(ctx)
    image = services.metadata.image
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        cluster_id=services.cluster_id,
        controller_id=controller_to_show(services),
        brokers=[
            DescribeClusterBroker(broker_id=broker.id, host=where[0], port=where[1], rack=broker.rack)
            for broker in image.brokers.values()
            if (where := broker.at(ctx.peer.listener)) is not None
        ],
        cluster_authorized_operations=(
            authorized_cluster_operations(ctx)
            if request.include_cluster_authorized_operations
            else OPERATIONS_NOT_REQUESTED
        ),
    )


def error_response(endpoint_type: int) -> DescribeClusterResponse:
    """Return the response to a request for controllers' endpoints, which exist only with KRaft."""
    controllers = endpoint_type == CONTROLLERS
    return DescribeClusterResponse(
        error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if controllers else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
        error_message=(
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
            if controllers
            else f"Unsupported endpoint type {endpoint_type}"
        ),
        cluster_id="",
        brokers=[],
    )
