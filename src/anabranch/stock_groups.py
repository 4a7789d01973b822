"""The lines of a resize's plan about groups with members that hold no gates, and whether a topic may shrink under them.

Across growth their coordinator keeps the order for them. Across a merge nobody can: a survivor's log goes on behind
the cut, and such a member reads on. So `reshard.legacy.consumers.shrink` says whether a topic may shrink meanwhile:

    auto      not if the topic is one whose order is kept for them; else with a warning
    warn      with a warning
    refuse    not while they read it
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from anabranch.clients.group_admin import Group, describe_group, list_groups
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.stock_producers import ORDERED, TOPIC_SOURCE
from anabranch.stock_producers import POLICY as PRODUCERS

if TYPE_CHECKING:
    from anabranch.clients.admin import Admin
    from anabranch.clients.config_admin import ConfigEntry
    from anabranch.clients.metadata import Topic

GATES: Final = "reshard.legacy.consumers"
SHRINK: Final = "reshard.legacy.consumers.shrink"
PROPERTIES: Final = (GATES, SHRINK, PRODUCERS, ORDERED)
_AT_A_TIME: Final = 20
_NAMED_MAX: Final = 5
_HEAD: Final = "  stock consumers     "
_MORE: Final = " " * len(_HEAD)


async def plan(admin: Admin, topic: Topic, count: int, configs: Mapping[str, ConfigEntry]) -> tuple[list[str], str]:
    """What becomes of these groups once the topic has `count` partitions, and why it may not, if so."""
    try:
        groups = await stock_groups(admin, topic.name)
    except (KafkaError, ConnectionError, TimeoutError) as error:
        return [f"{_HEAD}which groups read it is not known: {error}"], ""
    return group_lines(topic, count, configs, groups)


async def check_shrink(admin: Admin, name: str, count: int) -> None:
    """Raise POLICY_VIOLATION if a resize would shrink a topic that may not, while such groups read it."""
    topic = await admin.describe_topic(name)
    if topic.lineage is None or count >= topic.lineage.count:
        return
    _, refusal = await plan(admin, topic, count, await admin.describe_configs(name, names=PROPERTIES))
    if refusal:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, refusal)


async def stock_groups(admin: Admin, topic: str) -> list[Group]:
    """The groups that read the topic with members that hold no gates. Raises what a cluster in trouble raises."""
    turn = asyncio.Semaphore(_AT_A_TIME)

    async def described(group_id: str) -> Group | None:
        async with turn:
            try:
                return await describe_group(admin.network, group_id)
            except KafkaError as error:
                if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
                    return None  # gone since
                raise

    found = await asyncio.gather(*(described(one) for one in sorted(await list_groups(admin.network))))
    return [group for group in found if group is not None and _strangers(group, topic)]


def _strangers(group: Group, topic: str) -> list[str]:
    """The members that read the topic, or subscribe to it, and hold no gates."""
    return [
        str(member)
        for member in group.members
        if not member.holds_gates
        and (topic in member.topics or any(partition.topic == topic for partition in member.partitions))
    ]


def are_gated(topic: Topic, configs: Mapping[str, ConfigEntry]) -> bool:
    """Whether coordinators hold gates on this topic for those that hold none."""
    policy, ordered = configs[GATES].value, configs[ORDERED]
    if policy == "auto" and ordered.source == TOPIC_SOURCE:
        return ordered.value == "true"
    if policy == "auto":
        asked = topic.stamped or configs[PRODUCERS].value in ("refuse", "verify")
        return asked and ordered.value == "true"
    return policy == "gate"


def may_shrink(topic: Topic, configs: Mapping[str, ConfigEntry]) -> bool:
    """Whether the topic may shrink while such groups read it."""
    policy = configs[SHRINK].value
    return policy == "warn" or (policy == "auto" and not are_gated(topic, configs))


def group_lines(
    topic: Topic, count: int, configs: Mapping[str, ConfigEntry], groups: Sequence[Group]
) -> tuple[list[str], str]:
    """What becomes of these groups once the topic has `count` partitions, and why it may not, if so."""
    if topic.lineage is None or not groups or GATES not in configs:
        return [], ""
    names = [_told(group, topic.name) for group in groups[:_NAMED_MAX]]
    if len(groups) > _NAMED_MAX:
        names.append(f"and {len(groups) - _NAMED_MAX} more")
    lines = [f"{_HEAD}read it in {names[0]}", *(f"{_MORE}{name}" for name in names[1:])]
    shrinks = count < topic.lineage.count
    if not shrinks and are_gated(topic, configs):
        return [*lines, f"{_MORE}keys keep their order for them: new partitions come when the old ones are read"], ""
    if not shrinks:
        why = f"{GATES}={configs[GATES].value}"
        return [*lines, f"{_MORE}keys do not keep their order for them ({why}), as in Kafka"], ""
    lines.append(f"{_MORE}keys do not keep their order for them across a merge")
    if may_shrink(topic, configs):
        return lines, ""
    return lines, (
        f"{topic.name} does not shrink while consumers without gates read it, as keys would not keep their order for "
        f"them ({SHRINK}={configs[SHRINK].value}): stop them until it has, or set {SHRINK}=warn"
    )


def _told(group: Group, topic: str) -> str:
    strangers = _strangers(group, topic)
    more = f" and {len(strangers) - 1} more" if len(strangers) > 1 else ""
    return f"the group {group.group_id}: {strangers[0]}{more}"
