"""Whether a topic may shrink while groups read it whose members hold no gates.

Across growth their coordinator keeps the order for them. Across a merge nobody can: a survivor's log goes on behind
the cut, and such a member reads on. So `reshard.legacy.consumers.shrink` says whether a topic may shrink meanwhile:

    auto      not if the topic is one whose order is kept for them
    warn      yes
    refuse    no

Where it may not, and the cluster does not tell which groups read it, it does not shrink either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from anabranch.clients.config_admin import describe_configs
from anabranch.clients.group_admin import STREAMS, Group, describe_group, list_groups
from anabranch.clients.group_kinds import describe_streams_group
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.clients.config_admin import ConfigEntry
    from anabranch.clients.metadata import Topic
    from anabranch.clients.network import Network

    Describe = Callable[[Network, str], Awaitable[Group]]

GATES: Final = "reshard.legacy.consumers"
SHRINK: Final = "reshard.legacy.consumers.shrink"
PRODUCERS: Final = "reshard.legacy.producers"
ORDERED: Final = "enable.ordered.delivery"
PROPERTIES: Final = (GATES, SHRINK, PRODUCERS, ORDERED)
TOPIC_SOURCE: Final = 1
_AT_A_TIME: Final = 20


async def check_shrink(network: Network, topic: Topic) -> None:
    """Raise POLICY_VIOLATION if the topic may not shrink now, and what went wrong if that cannot be told."""
    configs = await describe_configs(network, topic.name, None, PROPERTIES)
    if SHRINK not in configs or may_shrink(topic, configs):
        return
    why = f"{SHRINK}={configs[SHRINK].value}"
    try:
        groups = await stock_groups(network, topic.name)
    except (KafkaError, ConnectionError, TimeoutError) as error:
        code = error.code if isinstance(error, KafkaError) else ErrorCode.COORDINATOR_NOT_AVAILABLE
        raise KafkaError(
            code,
            f"{topic.name} does not shrink, as it is not known whether consumers without gates read it ({error}; "
            f"{why}): try again, or set {SHRINK}=warn",
        ) from error
    if groups:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{topic.name} does not shrink while consumers without gates read it, as keys would not keep their order "
            f"for them ({why}; {told(groups[0], topic.name)}): let them read all, and stop them "
            f"until it has shrunk, or set {SHRINK}=warn",
        )


async def stock_groups(network: Network, topic: str) -> list[Group]:
    """The groups that read the topic with members that hold no gates. Raises what a cluster in trouble raises."""
    turn = asyncio.Semaphore(_AT_A_TIME)

    async def described(group_id: str, describe: Describe) -> Group | None:
        async with turn:
            try:
                return await describe(network, group_id)
            except KafkaError as error:
                if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
                    return None  # gone since
                raise

    known = [(one, describe_group) for one in sorted(await list_groups(network))]
    known += [(one, describe_streams_group) for one in sorted(await list_groups(network, STREAMS))]
    found = await asyncio.gather(*(described(*one) for one in known))
    return [group for group in found if group is not None and strangers(group, topic)]


def strangers(group: Group, topic: str) -> list[str]:
    """The members that read the topic, or subscribe to it, and hold no gates."""
    return [
        str(member)
        for member in group.members
        if not member.holds_gates
        and (topic in member.topics or any(partition.topic == topic for partition in member.partitions))
    ]


def told(group: Group, topic: str) -> str:
    """The group, by some of those members."""
    found = strangers(group, topic)
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return f"the group {group.group_id}: {found[0]}{more}"


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
