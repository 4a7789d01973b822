"""ElectLeaders: elect preferred replicas as leaders, or any live ones, although records may be lost.

Versions 0 to 2; v1 adds the unclean election (KIP-460). The controller elects. A broker answers when its own metadata
have the new leaders, so that the next request finds them. REQUEST_TIMED_OUT does not cancel an election.
"""

from __future__ import annotations

from typing import Final

from anabranch.broker.administration import topic_creation
from anabranch.broker.dispatch.auth_helper import authorize_client
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.metadata.metadata_cache import ClusterImage
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from anabranch.protocol.errors import ErrorCode, KafkaError

PREFERRED: Final = 0


@handles(ElectLeadersRequest, versions="0-2")
async def elect_leaders(ctx: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Forward the request to the active controller, then wait for the leaders in this broker's metadata."""
    services = ctx.services
    try:
        authorize_client(ctx, Operation.ALTER, ResourceType.CLUSTER)
        response = await topic_creation.forward_to_controller(
            services, request, lambda controller: controller.elect_leaders(request), timeout_ms=request.timeout_ms
        )
    except KafkaError as error:
        return refuse_all(request, error)
    elected = {
        (topic.topic, row.partition_id): row
        for topic in response.replica_election_results
        for row in topic.partition_result
        if row.error_code == ErrorCode.NONE
    }
    if not elected or not services.settings.is_broker:
        return response
    preferred = request.election_type == PREFERRED

    def all_elected(image: ClusterImage) -> bool:
        return all(has_leader(image, topic, index, preferred) for topic, index in elected)

    if not await services.metadata.wait_until(all_elected, request.timeout_ms):
        for (topic, index), row in elected.items():
            if not has_leader(services.metadata.image, topic, index, preferred):
                time_out(row)
    return response


def refuse_all(request: ElectLeadersRequest, error: KafkaError) -> ElectLeadersResponse:
    """Return a response with the same error for every partition, and at the top level."""
    return ElectLeadersResponse(
        error_code=error.code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=error.code, error_message=error.message or None)
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def has_leader(image: ClusterImage, topic: str, index: int, preferred: bool) -> bool:
    """Return whether a partition has the requested leader: its first replica, or any live one."""
    partition = image.partition(topic, index)
    if partition is None:
        return False
    return partition.leader == partition.replicas[0] if preferred else partition.leader in image.brokers


def time_out(row: PartitionResult) -> None:
    """Set the error of an election that is not in this broker's metadata yet."""
    row.error_code, row.error_message = ErrorCode.REQUEST_TIMED_OUT, "The request timed out."
