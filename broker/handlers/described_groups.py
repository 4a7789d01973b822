"""Describes the groups that a request names, one by one, by a function for their type.

A group that is named twice is described twice, as in Kafka. Each group has its own error; a group with a topic that the
client may not describe is refused. Authorized operations are added to described groups, if requested.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from anabranch.broker.dispatch.auth_helper import authorize, authorized_operations, is_authorized
from anabranch.broker.tasks.yield_budget import YieldBudget
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.broker.dispatch.request_context import RequestContext

Row = TypeVar("Row")


async def describe_groups(
    ctx: RequestContext,
    request: Any,
    row: Callable[..., Row],
    find: Callable[[str], Awaitable[tuple[Row, Iterable[str]]]],
    *,
    enabled: bool,
) -> list[Row]:
    """Describe `request.group_ids`; `find` returns a group's row and topics, `row` makes a row with an error."""

    async def describe(group_id: str) -> Row:
        try:
            if not enabled:
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
            authorize(ctx, Operation.DESCRIBE, ResourceType.GROUP, group_id)
            if not group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            group, topics = await find(group_id)
            if not all(is_authorized(ctx, Operation.DESCRIBE, ResourceType.TOPIC, name) for name in topics):
                hidden = "the group has a topic that is not shown"
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, hidden)
            return group
        except KafkaError as error:
            return row(group_id=group_id, error_code=error.code, error_message=error.message or None)

    groups: list[Any] = []
    turns = YieldBudget()
    for group_id in request.group_ids:
        await turns.spend()
        group: Any = await describe(group_id)
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = authorized_operations(ctx, ResourceType.GROUP, group_id)
        groups.append(group)
    groups.sort(key=lambda one: one.error_code != ErrorCode.GROUP_AUTHORIZATION_FAILED)  # as Kafka: their rows first
    return groups
