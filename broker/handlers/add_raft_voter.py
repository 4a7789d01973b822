"""AddRaftVoter: add a controller to the quorum; always refused (KIP-853).

Versions 0 and 1. The controllers are the running nodes, as in a fixed quorum (kraft.version 0).
"""

from __future__ import annotations

from typing import Final

from anabranch.broker.dispatch.auth_helper import authorize
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.handlers.remove_raft_voter import check_cluster
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from anabranch.protocol.errors import ErrorCode, KafkaError

DEFAULT_LISTENER: Final = "CONTROLLER"


@handles(AddRaftVoterRequest, versions="0-1")
async def add_raft_voter(ctx: RequestContext, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    """Refuse, with the checks in Kafka's order."""
    try:
        authorize(ctx, Operation.ALTER, ResourceType.CLUSTER)
        check_cluster(ctx, request.cluster_id)
        if all(one.name != DEFAULT_LISTENER for one in request.listeners):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Add voter request didn't include the endpoint for the default listener {DEFAULT_LISTENER}",
            )
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, "Cluster doesn't support adding voter because the kraft.version feature is 0"
        )
    except KafkaError as error:
        return AddRaftVoterResponse(error_code=error.code, error_message=error.message)
