"""Empties a cluster of processes, which keep running: the reset of a front.

It removes the rules, resumes and starts the nodes that are frozen or down, and deletes all topics, the internal ones
too: with them, groups, committed offsets and transactions end, also those whose clients are still connected. ACLs,
users, quotas and properties of brokers remain.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from anabranch.clients.topic_admin import NewTopic
from anabranch.control.actions import ActionRefused
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.clients.admin import Admin
    from anabranch.control.front.agent_client import AgentClient
    from anabranch.control.front.front import Front

RESET_S: Final = 120.0
"""How long a reset may take. Deleting a topic waits for all brokers that have replicas of it."""
LOOK_S: Final = 0.05
JOURNAL: Final = "/v1/journal"


async def reset(front: Front) -> None:
    """Empty the cluster. Raises ActionRefused if it is not empty after `RESET_S`."""
    left = "its nodes do not all run"
    try:
        async with asyncio.timeout(RESET_S):
            await front.rules.clear()
            await start_all(front)
            async with front.admin() as admin:
                while left := await _left(front):
                    await delete_topics(admin, await _topics(front))
                    await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise ActionRefused(f"the cluster is not empty after {RESET_S:g} s: {left}") from None
    await front.ask_each(_clear_journal)
    front.publish("reset")


async def start_all(front: Front) -> None:
    """Resume the frozen nodes, and start those that are down."""
    for node_id, link in front.links.items():
        if link.node.frozen:
            await front.actions.thaw(node_id)
            await front.catch_up(node_id)
    for node_id, link in front.links.items():
        if not link.node.running:
            await front.actions.start(node_id)
        await front.wait_up(node_id)


async def _topics(front: Front) -> list[str]:
    return [one["topic"] for one in (await front.state())["topics"]]


async def _left(front: Front) -> str:
    """What the cluster still has; empty if it has nothing."""
    state = await front.state()
    names = [f"topic {one['topic']}" for one in state["topics"]]
    names += [f"group {one['group']}" for one in state["groups"]]
    names += [f"transactional id {one['transactional_id']}" for one in state["transactions"]]
    return ", ".join(names)


async def delete_topics(admin: Admin, names: Sequence[str]) -> None:
    """Delete topics, and wait until topics of their names can be created."""
    if not names:
        return
    try:
        await admin.delete_topics(names)
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # metadata of a node was older
            raise
    for name in names:
        while await _exists(admin, name):  # noqa: ASYNC110  # another process sets no event here
            await asyncio.sleep(LOOK_S)


async def _exists(admin: Admin, name: str) -> bool:
    """Whether a topic exists, or is being deleted."""
    try:
        await admin.create_topics([NewTopic(name=name, partitions=1)], validate_only=True)
    except KafkaError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
        return True
    return False


async def _clear_journal(client: AgentClient) -> None:
    with contextlib.suppress(ActionRefused):  # this node keeps no journal
        await client.ask("DELETE", JOURNAL)
