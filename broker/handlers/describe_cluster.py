"""DescribeCluster: id, controller and brokers of the cluster (KIP-700).

Versions 0 and 1; v1 adds the endpoint type, of which only brokers (1) exist without KRaft.
"""

from __future__ import annotations

from broker.admin import controller_to_show
from broker.api import RequestContext, handles
from protocol.apis.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse
from protocol.errors import ErrorCode

BROKER_ENDPOINTS = 1


@handles(DescribeClusterRequest, versions="0-1")
async def describe_cluster(ctx: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Answer from the metadata image."""
    services = ctx.services
    if request.endpoint_type != BROKER_ENDPOINTS:
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE if request.endpoint_type == 2 else ErrorCode.INVALID_REQUEST
        return DescribeClusterResponse(
            error_code=code,
            error_message=f"endpoint type {request.endpoint_type} does not exist here; 1 means brokers",
            endpoint_type=request.endpoint_type,
            cluster_id=services.cluster_id,
            brokers=[],
        )
    image = services.metadata.image
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        cluster_id=services.cluster_id,
        controller_id=controller_to_show(image),
        brokers=[
            DescribeClusterBroker(broker_id=broker.id, host=broker.host, port=broker.port, rack=broker.rack)
            for broker in image.brokers.values()
        ],
    )
