"""The part of a resize plan about stock producers, which do not support generations (R16)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from anabranch.clients.config_admin import ConfigEntry
    from anabranch.clients.metadata import Topic

POLICY: Final = "reshard.legacy.producers"
ORDERED: Final = "enable.ordered.delivery"
PROPERTIES: Final = (POLICY, ORDERED)
TOPIC_SOURCE: Final = 1
_HEAD: Final = "  stock producers     "
_MORE: Final = " " * len(_HEAD)


def stock_lines(topic: Topic, count: int, configs: Mapping[str, ConfigEntry]) -> list[str]:
    """The effects on stock producers once the topic has `count` partitions; `configs` are the topic's `PROPERTIES`."""
    if topic.lineage is None or POLICY not in configs:
        return []
    policy, ordered = configs[POLICY].value, configs[ORDERED]
    is_set = ordered.source == TOPIC_SOURCE
    why = ""
    if policy == "auto" and is_set:
        policy, why = ("refuse", f"{ORDERED}=true") if ordered.value == "true" else ("allow", f"{ORDERED}=false")
    elif policy == "auto":
        policy, why = (
            ("refuse", "a producer with generations has written here") if topic.has_generations else ("auto", "")
        )
    why = f"{POLICY}={configs[POLICY].value}{', ' if why else ''}{why}"
    if policy == "refuse":
        return [f"{_HEAD}are refused after the resize ({why})"]
    if policy == "verify":
        return [f"{_HEAD}are accepted if they place keys by linear hashing over {count} ({why})"]
    lines = [f"{_HEAD}continue as in Kafka, without the order of keys ({why})"]
    if count < topic.lineage.count:
        sealed = ", ".join(str(index) for index in range(count, topic.lineage.count))
        lines.append(f"{_MORE}but are refused on {sealed} until it is drained")
    if policy == "auto":
        lines.append(f"{_MORE}to refuse them, set {ORDERED}=true before; the first producer with generations sets it")
    return lines
