"""Parses, creates and deletes ACLs for CreateAcls, DescribeAcls and DeleteAcls.

The code 0 (UNKNOWN) closes the connection, because Kafka's brokers fail to parse such a request. Codes of later
releases match nothing, and cannot be created. An invalid ACL fails alone, except for the filter codes ANY and MATCH,
which fail the whole request. Sources: `AclApis`, `AclAuthorizer`, `CreateAclsRequest.aclBinding`; compared with Kafka's
responses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from anabranch.broker.authorization.acl_store import change_acls
from anabranch.broker.dispatch.request_context import CloseConnection
from anabranch.controller.zk.acl_znodes import is_valid_name
from anabranch.controller.zk.body import MalformedZnode
from anabranch.protocol.acls import (
    ANY,
    CLUSTER_NAME,
    MATCH,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.broker.dispatch.services import Services
    from anabranch.protocol.apis.create_acls import AclCreation

Entry = tuple[ResourcePattern, Acl]
_TYPES: Final = frozenset(map(int, ResourceType))
UNKNOWN: Final = 0
"""Kafka's code UNKNOWN, which clients do not send."""
NO_AUTHORIZER: Final = "No Authorizer is configured."


def filter_of(request: Any) -> AclFilter:
    """Parse the filter of a DescribeAcls request, or one of a DeleteAcls request. Raises CloseConnection."""
    _check(request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type)
    return AclFilter(
        resource_type=request.resource_type_filter,
        name=request.resource_name_filter,
        pattern_type=request.pattern_type_filter,
        principal=request.principal_filter,
        host=request.host_filter,
        operation=request.operation,
        permission=request.permission_type,
    )


def check_creation(creation: AclCreation) -> None:
    """Raise CloseConnection for a code UNKNOWN."""
    _check(creation.resource_type, creation.resource_pattern_type, creation.operation, creation.permission_type)


def has_words_of_filters(creation: AclCreation) -> bool:
    """Whether a creation contains the filter codes ANY or MATCH."""
    words = (creation.resource_type, creation.operation, creation.permission_type)
    return ANY in words or creation.resource_pattern_type in (ANY, MATCH)


def entry_of(creation: AclCreation) -> Entry:
    """Parse the ACL of a creation. Raises KafkaError for an invalid one."""
    if creation.resource_type == ResourceType.CLUSTER and creation.resource_name != CLUSTER_NAME:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not creation.resource_name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty resource name")
    if "/" in creation.resource_name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Failed to create ACL: a name in ZooKeeper has no slash")
    try:
        kind, tree = ResourceType(creation.resource_type), PatternType(creation.resource_pattern_type)
        acl = Acl(
            creation.principal, creation.host, Operation(creation.operation), Permission(creation.permission_type)
        )
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Failed to create ACL: {error}") from None
    return ResourcePattern(kind, creation.resource_name, tree), acl


async def create(services: Services, entries: Iterable[Entry]) -> dict[ResourcePattern, KafkaError]:
    """Add ACLs, grouped by resource pattern. Return the errors: pattern -> error."""
    added: dict[ResourcePattern, set[Acl]] = {}
    for pattern, acl in entries:
        added.setdefault(pattern, set()).add(acl)
    refused: dict[ResourcePattern, KafkaError] = {}
    for pattern, acls in added.items():
        nameless = [acl.principal for acl in acls if ":" not in acl.principal]
        try:
            if nameless:
                message = f"{nameless[0]!r} is not of the form User:alice"
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message)
            if not is_valid_name(pattern.name):
                message = f"{pattern.name!r} cannot be the name of a znode, so it has no ACLs"
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message)
            await _change(services, pattern, lambda before, acls=acls: before | acls)
        except KafkaError as error:
            refused[pattern] = error
    return refused


async def delete(
    services: Services, filters: Sequence[AclFilter]
) -> tuple[list[list[Entry]], dict[ResourcePattern, KafkaError]]:
    """Delete the ACLs that match filters.

    Returns the deleted ACLs of each filter (an ACL that several match belongs to the first), and the errors:
    pattern -> error.
    """
    assert services.authorizer is not None
    patterns = [one for one in services.authorizer.acls if any(each.covers(one) for each in filters)]
    patterns += [one for each in filters for one in patterns_to_load(each) if one not in patterns]
    found: list[list[Entry]] = [[] for _ in filters]
    refused: dict[ResourcePattern, KafkaError] = {}
    for pattern in patterns:
        gone: dict[Acl, int] = {}

        def remove(before: frozenset[Acl], pattern: ResourcePattern = pattern, gone: dict[Acl, int] = gone) -> set[Acl]:
            for acl in before:
                matching = next((n for n, one in enumerate(filters) if one.covers(pattern) and one.picks(acl)), None)
                if matching is not None:
                    gone[acl] = matching
            return set(before) - gone.keys()

        try:
            await _change(services, pattern, remove)
        except KafkaError as error:
            refused[pattern] = error
        for acl, which in gone.items():
            found[which].append((pattern, acl))
    return found, refused


async def _change(services: Services, pattern: ResourcePattern, edit: Any) -> None:
    """Change the ACLs of a pattern in ZooKeeper and in this broker's cache. Raises KafkaError."""
    assert services.acls is not None
    try:
        await change_acls(services.session, pattern, edit)
        await services.acls.read_again(pattern)
    except MalformedZnode as error:
        services.log.error("the ACL znode of %s is malformed and stays unchanged: %s", pattern, error)
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Failed to update ACLs for {pattern}: {error}") from None


def patterns_to_load(one: AclFilter) -> list[ResourcePattern]:
    """The patterns that a filter names, which this broker's cache may not hold yet."""
    if one.name is None or not is_valid_name(one.name) or one.resource_type not in _TYPES:
        return []
    trees = [tree for tree in PatternType if one.pattern_type in (ANY, tree)]
    return [ResourcePattern(ResourceType(one.resource_type), one.name, tree) for tree in trees]


def _check(*numbers: int) -> None:
    if UNKNOWN in numbers:
        raise CloseConnection("an ACL request contains the value UNKNOWN")
