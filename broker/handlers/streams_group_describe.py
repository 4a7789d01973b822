"""StreamsGroupDescribe: describe the members, tasks and topology of groups of Kafka Streams (KIP-1071).

Version 0. A group of another type is GROUP_ID_NOT_FOUND. One with a topic that the client may not describe is refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.broker.coordinators.streams_groups.configured_topology import required_topics
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.handlers.described_groups import describe_groups
from anabranch.protocol.apis.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)


@handles(StreamsGroupDescribeRequest, versions="0")
async def streams_group_describe(
    ctx: RequestContext, request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeResponse:
    """Describe each group."""

    async def find(group_id: str) -> tuple[DescribedGroup, Iterable[str]]:
        group, row = await ctx.services.groups.streamers.group(group_id)
        return row, required_topics(() if group.topology is None else group.topology.subtopologies)

    enabled = ctx.services.has_streams_groups
    groups = await describe_groups(ctx, request, DescribedGroup, find, enabled=enabled)
    return StreamsGroupDescribeResponse(groups=groups)
