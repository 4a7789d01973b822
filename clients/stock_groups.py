"""Groups with stock members that read a topic, and whether their order is kept, for resize plans.

The controller's node decides whether a topic may shrink while they read it (`broker.administration.shrink_check`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from anabranch.protocol.apis.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.clients.config_admin import ConfigEntry
    from anabranch.clients.metadata import Topic
    from anabranch.clients.network import Network

GATES: Final = "reshard.legacy.consumers"
PRODUCERS: Final = "reshard.legacy.producers"
ORDERED: Final = "enable.ordered.delivery"
PROPERTIES: Final = (GATES, PRODUCERS, ORDERED)
"""The topic settings that `are_gated` needs."""
TOPIC_SOURCE: Final = 1


async def stock_groups_of(network: Network, topic: str) -> list[ListedGroup]:
    """Return those groups, as far as the caller may see them. Raises the cluster's errors."""

    async def of(node_id: int) -> ListGroupsResponse:
        response: ListGroupsResponse = await network.call(node_id, ListGroupsRequest(readers_of=topic))
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode(response.error_code), f"node {node_id}")
        return response

    async def once() -> list[ListGroupsResponse]:
        await network.refresh()
        return await asyncio.gather(*(of(node_id) for node_id in network.metadata.nodes))

    answers = await network.retry(once)  # ask all brokers again: a dead broker's groups have moved
    found = (row for answer in answers for row in answer.groups if row.readers)
    return sorted(found, key=lambda row: row.group_id)


def group_line(group: ListedGroup) -> str:
    """Describe the group with some of those members."""
    return f"the group {group.group_id}: {group.readers}"


def are_gated(topic: Topic, configs: Mapping[str, ConfigEntry]) -> bool:
    """Whether coordinators hold gates on this topic for stock members."""
    policy, ordered = configs[GATES].value, configs[ORDERED]
    if policy == "auto" and ordered.source == TOPIC_SOURCE:
        return ordered.value == "true"
    if policy == "auto":
        applies = topic.has_generations or configs[PRODUCERS].value in ("refuse", "verify")
        return applies and ordered.value == "true"
    return policy == "gate"
