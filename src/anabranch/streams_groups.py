"""The lines of a resize's plan about applications of Kafka Streams (Java) that read the topic.

Kafka Streams knows nothing of cuts: its tasks do not hand the state of keys that move to the tasks that get them. So an
instance of this package in the same group waits for that state for as long as a Java member has the task. Kafka Streams
itself goes on without it, or ends: as leader it refuses changelogs of another width (`InternalTopicManager`). Java
members are recognised by the end of their client ids, which an application cannot choose (`StreamThread`,
`ClientUtils.consumerClientId`).
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

from anabranch.clients.group_admin import Group, describe_group, list_groups
from anabranch.protocol.errors import KafkaError

if TYPE_CHECKING:
    from anabranch.clients.admin import Admin

STREAM: Final = "stream"
_THREAD: Final = re.compile(r"-StreamThread-\d+-consumer$")
_AT_A_TIME: Final = 20
_HEAD: Final = "  Kafka Streams       "
_MORE: Final = " " * len(_HEAD)


async def streams_lines(admin: Admin, topic: str) -> list[str]:
    """What to know before the topic is resized; empty if no Java member of a Streams group reads it."""
    turn = asyncio.Semaphore(_AT_A_TIME)

    async def described(group_id: str) -> Group:
        async with turn:
            return await describe_group(admin.network, group_id)

    try:
        groups = await asyncio.gather(*(described(one) for one in await list_groups(admin.network)))
    except (KafkaError, ConnectionError, TimeoutError) as error:
        return [f"{_HEAD}whether it reads the topic is not known: {error}"]
    return [line for group in groups for line in _lines(group, topic)]


def _lines(group: Group, topic: str) -> list[str]:
    java = sorted(str(member) for member in group.members if _THREAD.search(member.client_id))
    reads = any(partition.topic == topic for member in group.members for partition in member.partitions)
    if group.protocol != STREAM or not java or not reads:
        return []
    others = len(group.members) - len(java)
    first = f"{_HEAD}reads the topic in the group {group.group_id}: {java[0]}"
    more = f" and {len(java) - 1} more" if len(java) > 1 else ""
    stall = f"; {others} of this package in the group wait for it as long as Java has the task" if others else ""
    return [
        f"{first}{more}",
        f"{_MORE}it does not hand on the state of keys that move{stall}",
        f"{_MORE}stop its instances before the resize, and start none before all tasks run again",
    ]
