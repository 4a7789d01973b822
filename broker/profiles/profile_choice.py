"""Parses the Kafka version of each node: "4.1" for all nodes, or "1=3.9,2=4.1" as during an upgrade."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from anabranch.broker.config.config_def import ConfigError
from anabranch.broker.profiles.profile import DEFAULT, VERSIONS, profile_for


def oldest(versions: Iterable[str]) -> str:
    """Return the oldest version. A new cluster starts with its features; otherwise older nodes could not join."""
    return min(versions, key=VERSIONS.index)


def versions_of(kafka: str | Mapping[int, str], node_ids: Iterable[int], default: str = DEFAULT) -> dict[int, str]:
    """Return node -> version; `default` for nodes without one. Raises ConfigError."""
    nodes = list(node_ids)
    chosen = kafka if isinstance(kafka, Mapping) else _parse(kafka, nodes)
    unknown = sorted(chosen.keys() - set(nodes))
    if unknown:
        raise ConfigError(f"kafka: there is no node {unknown[0]}; there are {', '.join(map(str, nodes))}")
    try:
        return {node: profile_for(chosen.get(node, default)).version for node in nodes}
    except ValueError as error:
        raise ConfigError(f"kafka: {error}") from None


def _parse(text: str, nodes: list[int]) -> dict[int, str]:
    if not text:
        return {}
    if "=" not in text:
        return dict.fromkeys(nodes, text)
    pairs = [pair.partition("=") for pair in text.split(",")]
    wrong = [f"{node}{sign}{version}" for node, sign, version in pairs if not node.strip().isdecimal() or not version]
    if wrong:
        raise ConfigError(f"kafka: {wrong[0]!r} is no ID=VERSION; write 4.1, or 1=3.9,2=4.1")
    return {int(node): version.strip() for node, _, version in pairs}
