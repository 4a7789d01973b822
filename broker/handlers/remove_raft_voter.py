"""RemoveRaftVoter: remove a controller from the quorum; always refused (KIP-853).

Version 0. See AddRaftVoter.
"""

from __future__ import annotations

from anabranch.broker.dispatch.auth_helper import authorize
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.wire import ZERO_UUID


@handles(RemoveRaftVoterRequest, versions="0")
async def remove_raft_voter(ctx: RequestContext, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
    """Refuse, with the checks in Kafka's order."""
    try:
        authorize(ctx, Operation.ALTER, ResourceType.CLUSTER)
        check_cluster(ctx, request.cluster_id)
        if request.voter_directory_id == ZERO_UUID:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Remove voter request didn't include a valid voter")
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "Cluster doesn't support removing voter because the kraft.version feature is 0",
        )
    except KafkaError as error:
        return RemoveRaftVoterResponse(error_code=error.code, error_message=error.message)


def check_cluster(ctx: RequestContext, cluster_id: str | None) -> None:
    """Raise KafkaError if the request is for another cluster."""
    own = ctx.services.cluster_id
    if cluster_id is not None and cluster_id != own:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID, f'The given id "{cluster_id}" doesn\'t match the cluster id "{own}"'
        )
