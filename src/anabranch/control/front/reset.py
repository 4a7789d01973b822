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
    from anabranch.control.state import ClusterStateRow

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
            for node_id in list(front.clock_offsets_ms):
                await front.shift_clock(node_id, 0)
            for node_id in front.links:
                with contextlib.suppress(ActionRefused):  # its link to ZooKeeper is neither cut nor slow
                    await front.actions.resume_session(node_id)
            await start_all(front)
            before = await front.state()
            async with front.admin() as admin:
                await delete_topics(admin, [one["topic"] for one in before["topics"]])
            while left := _left(before, await front.state()):  # noqa: ASYNC110  # nodes set no event here
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


def _left(before: ClusterStateRow, now: ClusterStateRow) -> str:
    """What is left of the groups and transactions of an earlier state, less what connected clients have begun since."""
    members = {one for group in before["groups"] for one in group["members"]}
    ids = {group["group"] for group in before["groups"]}
    producers = {(one["transactional_id"], one["producer_id"], one["producer_epoch"]) for one in before["transactions"]}
    names = [
        f"group {one['group']}"
        for one in now["groups"]
        if members.intersection(one["members"]) or (one["group"] in ids and not one["members"])
    ]
    names += [
        f"transactional id {one['transactional_id']}"
        for one in now["transactions"]
        if (one["transactional_id"], one["producer_id"], one["producer_epoch"]) in producers
    ]
    return ", ".join(names)


async def delete_topics(admin: Admin, names: Sequence[str]) -> None:
    """Delete topics, and wait until topics of their names can be created, or clients have created them."""
    found = await admin.describe_topics()
    ids = {name: found[name].topic_id for name in names if name in found}
    if not ids:
        return
    try:
        await admin.delete_topics(list(ids))
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # metadata of a node was older
            raise
    for name, topic_id in ids.items():
        while await _is_left(admin, name, topic_id):  # noqa: ASYNC110  # another process sets no event here
            await asyncio.sleep(LOOK_S)


async def _is_left(admin: Admin, name: str, topic_id: bytes) -> bool:
    """Whether a topic exists, or is being deleted."""
    try:
        await admin.create_topics([NewTopic(name=name, partitions=1)], validate_only=True)
    except KafkaError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
        there = (await admin.describe_topics()).get(name)
        return there is None or there.topic_id == topic_id
    return False


async def _clear_journal(client: AgentClient) -> None:
    with contextlib.suppress(ActionRefused):  # this node keeps no journal
        await client.ask("DELETE", JOURNAL)
