"""Authorization checks for handlers, with the error code of a refusal.

Handlers check before they look up a topic, group or id, as in Kafka, so that an unauthorized client learns nothing of
it. A node without an authorizer allows everything, at the cost of one check. Sources: `KafkaApis`, `AuthHelper`,
`AclEntry.supportedOperations` (KIP-430).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from anabranch.protocol.acls import CLUSTER_NAME, SUPPORTED, Operation, ResourceType
from anabranch.protocol.connection import NODE_SOFTWARE
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.broker.dispatch.request_context import RequestContext

OPERATIONS_NOT_REQUESTED: Final = -(2**31)
"""The value of an operation set that the client has not requested."""
DENIED_CODE: Final[Mapping[ResourceType, ErrorCode]] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


ALL_OPERATIONS: Final[Mapping[ResourceType, int]] = {
    kind: sum(1 << operation for operation in supported) for kind, supported in SUPPORTED.items()
}
"""The operations that a node without an authorizer allows, as bit sets."""
CONFIG_OPERATIONS: Final = (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)


def may_come_by_this_listener(ctx: RequestContext) -> bool:
    """Return whether the listener of a request between brokers accepts such requests."""
    settings = ctx.services.settings
    return not settings.inter_broker_requests_restricted or ctx.peer.listener == settings.inter_broker_listener


def is_authorized(
    ctx: RequestContext, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME
) -> bool:
    """Return whether the client may perform this operation on a resource."""
    if operation is Operation.CLUSTER_ACTION and not may_come_by_this_listener(ctx):
        return False
    authorizer = ctx.services.authorizer
    return authorizer is None or authorizer.allows(
        ctx.peer.principal, ctx.peer.acl_host, operation, resource_type, name
    )


def authorize(ctx: RequestContext, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> None:
    """Raise KafkaError with the code of the resource's type unless the client is authorized."""
    if not is_authorized(ctx, operation, resource_type, name):
        raise KafkaError(DENIED_CODE[resource_type], f"{ctx.peer.principal} may not {operation.name} {name!r}")


def is_node(ctx: RequestContext) -> bool:
    """Return whether another node sent the request: for itself, or for a client whose rights it has checked."""
    return ctx.peer.software_name == NODE_SOFTWARE and is_authorized(
        ctx, Operation.CLUSTER_ACTION, ResourceType.CLUSTER
    )


def authorize_client(
    ctx: RequestContext, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME
) -> None:
    """Raise KafkaError unless the client is authorized. Another node needs no right but CLUSTER_ACTION."""
    if not is_node(ctx):
        authorize(ctx, operation, resource_type, name)


def authorize_broker(ctx: RequestContext) -> None:
    """Raise KafkaError unless the client may act as a broker; log it once, since the client is probably a broker."""
    if not may_come_by_this_listener(ctx):
        raise KafkaError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"requests between brokers are not accepted on the listener {ctx.peer.listener}",
        )
    try:
        authorize(ctx, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    except KafkaError:
        authorizer = ctx.services.authorizer
        assert authorizer is not None, "only an authorizer refuses requests"
        if ctx.peer.principal not in authorizer.strangers:
            authorizer.strangers.add(ctx.peer.principal)
            ctx.services.log.warning(
                "%s from %s may not act as a broker. If it is a broker of this cluster, add its principal to "
                "super.users",
                ctx.peer.principal,
                ctx.peer.host,
            )
        raise


def is_authorized_for_any(ctx: RequestContext, operation: Operation, resource_type: ResourceType) -> bool:
    """Return whether the client may perform the operation on any possible resource of the type (KIP-679)."""
    authorizer = ctx.services.authorizer
    return authorizer is None or authorizer.allows_some(ctx.peer.principal, ctx.peer.acl_host, operation, resource_type)


def authorized_operations(ctx: RequestContext, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
    """Return all operations that the client may perform on a resource, as a bit set (KIP-430)."""
    authorizer = ctx.services.authorizer
    more = 0
    if resource_type is ResourceType.GROUP and ctx.services.profile.groups_have_configs:
        more = sum(1 << one for one in CONFIG_OPERATIONS if is_authorized(ctx, one, resource_type, name))
    if authorizer is None:
        return ALL_OPERATIONS[resource_type] | more
    return authorizer.operations(ctx.peer.principal, ctx.peer.acl_host, resource_type, name) | more


def authorized_cluster_operations(ctx: RequestContext) -> int:
    """Return the client's operations on the cluster; none if it may not describe the cluster."""
    described = is_authorized(ctx, Operation.DESCRIBE, ResourceType.CLUSTER)
    return authorized_operations(ctx, ResourceType.CLUSTER) if described else 0
