"""The part of a resize plan about Kafka Streams (Java) applications that read the topic.

Kafka Streams does not support cuts: its tasks do not transfer the state of moved keys. An instance of this package in
the same group waits for that state as long as a Java member has the task. Kafka Streams itself continues without the
state, or fails: as group leader it refuses changelogs with another partition count (`InternalTopicManager`). The end of
a client id identifies Java members, because applications cannot choose it (`StreamThread`,
`ClientUtils.consumerClientId`). In streams groups (KIP-1071) all members are Java's; there the broker refuses
changelogs with another partition count.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

from anabranch.clients.group_admin import STREAMS, Group, describe_group, list_groups
from anabranch.protocol.apis.streams_group_describe import DescribedGroup, StreamsGroupDescribeRequest
from anabranch.protocol.errors import KafkaError

if TYPE_CHECKING:
    from anabranch.clients.admin import Admin

STREAM: Final = "stream"
"""The protocol of groups whose members assign the tasks."""
_THREAD: Final = re.compile(r"-StreamThread-\d+-consumer$")
_AT_A_TIME: Final = 20
_HEAD: Final = "  Kafka Streams       "
_MORE: Final = " " * len(_HEAD)


async def streams_lines(admin: Admin, topic: str) -> list[str]:
    """Warnings before a resize; empty if no Java member of a Streams group reads the topic."""
    turn = asyncio.Semaphore(_AT_A_TIME)

    async def describe(group_id: str) -> Group:
        async with turn:
            return await describe_group(admin.network, group_id)

    async def dealt(group_id: str) -> DescribedGroup:
        request = StreamsGroupDescribeRequest(group_ids=[group_id])
        async with turn:
            answer = await admin.network.call_coordinator(
                group_id, request, lambda response: response.groups[0].error_code
            )
            row: DescribedGroup = answer.groups[0]
            return row

    try:
        groups = await asyncio.gather(*(describe(one) for one in await list_groups(admin.network)))
        others = await asyncio.gather(*(dealt(one) for one in await list_groups(admin.network, STREAMS)))
    except (KafkaError, ConnectionError, TimeoutError) as error:
        return [f"{_HEAD}cannot check whether it reads the topic: {error}"]
    classic = [line for group in groups for line in _lines(group, topic)]
    return classic + [line for group in others for line in _lines_of_dealt(group, topic)]


def _lines(group: Group, topic: str) -> list[str]:
    java = sorted(str(member) for member in group.members if _THREAD.search(member.client_id))
    reads = any(partition.topic == topic for member in group.members for partition in member.partitions)
    if group.protocol != STREAM or not java or not reads:
        return []
    others = len(group.members) - len(java)
    stall = f"; {others} Python members of the group wait while a Java member has the task" if others else ""
    return [
        _who_reads(group.group_id, java),
        f"{_MORE}it does not move the state of moved keys{stall}",
        f"{_MORE}stop its instances before the resize, and start them when all tasks run again",
    ]


def _lines_of_dealt(group: DescribedGroup, topic: str) -> list[str]:
    parts = [] if group.topology is None else group.topology.subtopologies or []
    if not group.members or not any(topic in one.source_topics for one in parts):
        return []
    first = _who_reads(group.group_id, sorted(f"{one.client_id}{one.client_host}" for one in group.members))
    if not any(one.state_changelog_topics or one.repartition_sink_topics for one in parts):
        return [first, f"{_MORE}it has no state, and gets one task per partition"]
    return [
        first,
        f"{_MORE}its internal topics would have the wrong partition count: it fails",
        f"{_MORE}stop it before the resize; then reset the application, and start it",
    ]


def _who_reads(group_id: str, members: list[str]) -> str:
    more = f" and {len(members) - 1} more" if len(members) > 1 else ""
    return f"{_HEAD}reads the topic in the group {group_id}: {members[0]}{more}"
