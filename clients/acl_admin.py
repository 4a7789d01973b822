"""Lists, creates and deletes ACL entries for `Admin` (KIP-140, KIP-290)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from anabranch.protocol.acls import (
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from anabranch.protocol.apis.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from anabranch.protocol.apis.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from anabranch.protocol.apis.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from anabranch.protocol.errors import raise_for_error

if TYPE_CHECKING:
    from anabranch.clients.network import Network

Entry = tuple[ResourcePattern, Acl]


async def describe_acls(network: Network, acl_filter: AclFilter) -> list[Entry]:
    """List the entries that match a filter. Raises KafkaError."""
    request = DescribeAclsRequest(**_filter_fields(acl_filter))
    response: DescribeAclsResponse = await network.call_any(request)
    raise_for_error(response.error_code, response.error_message)
    return [
        (
            _pattern(one.resource_type, one.resource_name, one.pattern_type),
            Acl(row.principal, row.host, Operation(row.operation), Permission(row.permission_type)),
        )
        for one in response.resources
        for row in one.acls
    ]


async def create_acls(network: Network, entries: Sequence[Entry]) -> None:
    """Create entries. Raises KafkaError for the first that is refused; the others are created."""
    creations = [creation_of(entry) for entry in entries]
    response: CreateAclsResponse = await network.call_any(CreateAclsRequest(creations=creations))
    for one in response.results:
        raise_for_error(one.error_code, one.error_message)


async def delete_acls(network: Network, acl_filters: Sequence[AclFilter]) -> list[Entry]:
    """Delete the entries that match any filter, and return them. Raises KafkaError for the first that is refused."""
    filters = [deletion_of(one) for one in acl_filters]
    response: DeleteAclsResponse = await network.call_any(DeleteAclsRequest(filters=filters))
    gone: list[Entry] = []
    for result in response.filter_results:
        raise_for_error(result.error_code, result.error_message)
        for row in result.matching_acls:
            raise_for_error(row.error_code, row.error_message)
            acl = Acl(row.principal, row.host, Operation(row.operation), Permission(row.permission_type))
            gone.append((_pattern(row.resource_type, row.resource_name, row.pattern_type), acl))
    return gone


def creation_of(entry: Entry) -> AclCreation:
    """Build the row of CreateAcls for an entry."""
    pattern, acl = entry
    return AclCreation(
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        resource_pattern_type=pattern.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def deletion_of(acl_filter: AclFilter) -> DeleteAclsFilter:
    """Build the row of DeleteAcls for a filter."""
    return DeleteAclsFilter(**_filter_fields(acl_filter))


def _filter_fields(acl_filter: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": acl_filter.resource_type,
        "resource_name_filter": acl_filter.name,
        "pattern_type_filter": acl_filter.pattern_type,
        "principal_filter": acl_filter.principal,
        "host_filter": acl_filter.host,
        "operation": acl_filter.operation,
        "permission_type": acl_filter.permission,
    }


def _pattern(kind: int, name: str, pattern_type: int) -> ResourcePattern:
    return ResourcePattern(ResourceType(kind), name, PatternType(pattern_type))
