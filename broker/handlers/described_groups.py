"""Describes the groups that a request names, one by one, each as its kind is described.

A group that is named twice is described twice, as in Kafka. What the client may do with a group is told of those that
could be described, if it was asked for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from anabranch.broker.dispatch.auth_helper import authorized_operations
from anabranch.broker.tasks.yield_budget import YieldBudget
from anabranch.protocol.acls import ResourceType
from anabranch.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from anabranch.broker.dispatch.request_context import RequestContext


async def described_groups(
    ctx: RequestContext, request: Any, describe: Callable[[RequestContext, str], Awaitable[Any]]
) -> list[Any]:
    """The rows of `request.group_ids`; `describe` makes one of them, or one that tells an error."""
    groups, turns = [], YieldBudget()
    for group_id in request.group_ids:
        await turns.spend()
        group = await describe(ctx, group_id)
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = authorized_operations(ctx, ResourceType.GROUP, group_id)
        groups.append(group)
    return groups
