"""The part of a resize plan about groups with stock consumers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from anabranch.clients.group_admin import STREAMS
from anabranch.clients.stock_groups import GATES, are_gated, group_line, stock_groups_of
from anabranch.protocol.errors import KafkaError
from anabranch.resize.streams_groups import STREAM

if TYPE_CHECKING:
    from anabranch.clients.admin import Admin
    from anabranch.clients.config_admin import ConfigEntry
    from anabranch.clients.metadata import Topic
    from anabranch.protocol.apis.list_groups import ListedGroup

_NAMED_MAX: Final = 5
_HEAD: Final = "  stock consumers     "
_MORE: Final = " " * len(_HEAD)


async def plan(admin: Admin, topic: Topic, count: int, configs: Mapping[str, ConfigEntry]) -> list[str]:
    """The effects on these groups once the topic has `count` partitions."""
    try:
        groups = await stock_groups_of(admin.network, topic.name)
    except (KafkaError, ConnectionError, TimeoutError) as error:
        return [f"{_HEAD}cannot list the groups that read it: {error}"]
    others = [one for one in groups if one.protocol not in (STREAM, STREAMS)]  # see `streams_lines`
    return group_lines(topic, count, configs, others)


def group_lines(
    topic: Topic, count: int, configs: Mapping[str, ConfigEntry], groups: Sequence[ListedGroup]
) -> list[str]:
    """The effects on these groups once the topic has `count` partitions."""
    if topic.lineage is None or not groups or GATES not in configs:
        return []
    names = [group_line(group) for group in groups[:_NAMED_MAX]]
    if len(groups) > _NAMED_MAX:
        names.append(f"and {len(groups) - _NAMED_MAX} more")
    lines = [f"{_HEAD}read it in {names[0]}", *(f"{_MORE}{name}" for name in names[1:])]
    if count < topic.lineage.count:
        return [*lines, f"{_MORE}a merge breaks their order of keys"]
    if are_gated(topic, configs):
        return [*lines, f"{_MORE}they keep the order of keys: they get new partitions after reading the old ones"]
    why = f"{GATES}={configs[GATES].value}"
    return [*lines, f"{_MORE}they lose the order of keys ({why}), as in Kafka"]
