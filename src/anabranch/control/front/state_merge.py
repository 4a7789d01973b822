"""Merges the states that the nodes of a cluster report into one.

A topic comes from the node with its newest metadata, the log of a replica from that replica, the high watermark and the
ISR of a partition from its leader, and a group or a transactional id from its coordinator. The nodes answer at
different moments, so two parts of one response may be some milliseconds apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar, cast

from anabranch.protocol.hashing import partition_of_group
from anabranch.protocol.internal_topics import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from anabranch.control.state import (
        ClusterStateRow,
        GroupRow,
        NodeRow,
        OffsetRow,
        PartitionRow,
        ReplicaRow,
        TopicRow,
        TransactionRow,
    )

Row = TypeVar("Row", "GroupRow", "TransactionRow")
States = Mapping[int, "ClusterStateRow"]
"""Node -> the state that it reports."""
Ends = Mapping[tuple[str, int], "PartitionRow"]
LIVE: Final = ("controller", "broker_epoch", "connections", "frozen", "clock_offset_ms")
"""The fields of a node that only the node itself knows."""


def merge_states(states: States, nodes: Sequence[NodeRow]) -> ClusterStateRow:
    """Merge the states of all nodes that answer; `nodes` are the rows of all nodes."""
    topics = merge_topics({node: state["topics"] for node, state in states.items()})
    return {
        "nodes": merge_nodes(nodes, {node: state["nodes"] for node, state in states.items()}),
        "topics": topics,
        "groups": merge_groups([row for state in states.values() for row in state["groups"]], topics),
        "transactions": merge_transactions([row for state in states.values() for row in state["transactions"]], topics),
    }


def merge_nodes(nodes: Iterable[NodeRow], reported: Mapping[int, Iterable[NodeRow]]) -> list[NodeRow]:
    """The rows of all nodes, with what each running node reports of itself."""
    own = {row["node"]: row for node, rows in reported.items() for row in rows if row["node"] == node}
    return [_node(row, own.get(row["node"])) for row in nodes]


def _node(known: NodeRow, own: NodeRow | None) -> NodeRow:
    if own is None or not known["running"]:
        return known
    fields = {name: value for name, value in own.items() if name in LIVE}
    return cast("NodeRow", {**known, **fields, "frozen": known.get("frozen", False)})


def merge_topics(reported: Mapping[int, Iterable[TopicRow]]) -> list[TopicRow]:
    """All topics by name."""
    by_name: dict[str, dict[int, TopicRow]] = {}
    for node, rows in reported.items():
        for row in rows:
            by_name.setdefault(row["topic"], {})[node] = row
    return [_topic(by_name[name]) for name in sorted(by_name)]


def _topic(rows: Mapping[int, TopicRow]) -> TopicRow:
    newest = max(rows.values(), key=_age)
    parts: dict[int, dict[int, PartitionRow]] = {}
    for node, row in rows.items():
        for one in row["partitions"]:
            parts.setdefault(one["partition"], {})[node] = one
    partitions = [_partition(parts[one["partition"]]) for one in newest["partitions"]]
    return {**newest, "partitions": partitions}


def _age(topic: TopicRow) -> tuple[int, int]:
    return topic["generation"], sum(one["leader_epoch"] for one in topic["partitions"])


def _partition(rows: Mapping[int, PartitionRow]) -> PartitionRow:
    newest = max(rows.values(), key=lambda row: (row["leader_epoch"], row["high_watermark"]))
    leader = rows.get(newest["leader"])
    leads = leader is not None and leader["high_watermark"] >= 0
    return {
        **newest,
        "isr": leader["isr"] if leader is not None and leads else newest["isr"],
        "high_watermark": leader["high_watermark"] if leader is not None and leads else -1,
        "replicas": [_replica(one["node"], rows.get(one["node"])) for one in newest["replicas"]],
    }


def _replica(node: int, row: PartitionRow | None) -> ReplicaRow:
    """The log of a replica, as its node reports it."""
    for one in () if row is None else row["replicas"]:
        if one["node"] == node:
            return one
    return {"node": node, "start": -1, "end": -1}


def merge_groups(rows: Iterable[GroupRow], topics: Sequence[TopicRow]) -> list[GroupRow]:
    """All groups by id; ends and lag come from the leaders of the partitions, which a coordinator may not be."""
    leader_of = _leaders(topics, CONSUMER_OFFSETS_TOPIC)
    places = {(topic["topic"], one["partition"]): one for topic in topics for one in topic["partitions"]}
    found: dict[str, list[GroupRow]] = {}
    for row in rows:
        found.setdefault(row["group"], []).append(_group(row, places))
    present = (row for name, of in found.items() for row in _present(of, leader_of(name)))
    return sorted(present, key=lambda row: (row["group"], row["coordinator"]))


def _leaders(topics: Iterable[TopicRow], name: str) -> Callable[[str], int]:
    """Return a function that returns the leader of a key's partition of an internal topic; -1 if it is unknown."""
    leaders = [one["leader"] for topic in topics if topic["topic"] == name for one in topic["partitions"]]
    return lambda key: leaders[partition_of_group(key, len(leaders))] if leaders else -1


def _present(rows: list[Row], coordinator: int) -> list[Row]:
    """Of the rows of one id, return that of its coordinator; former ones, which do not know it, may answer, too."""
    return [row for row in rows if row["coordinator"] == coordinator] or rows


def _group(row: GroupRow, places: Ends) -> GroupRow:
    offsets = [_offset(one, places) for one in row["offsets"]]
    return {**row, "offsets": offsets, "lag": sum(one["lag"] for one in offsets)}


def _offset(row: OffsetRow, places: Ends) -> OffsetRow:
    place = places.get((row["topic"], row["partition"]))
    if place is None:
        return row
    end, committed = place["high_watermark"], row.get("committed")
    if "start" in row:
        finished = row["end"] - row["start"] - row["lag"] if row["end"] >= 0 else 0
        return {**row, "end": end, "lag": max(end - row["start"] - max(finished, 0), 0)}
    start = max((one["start"] for one in place["replicas"]), default=0)
    return {**row, "end": end, "lag": max(end - (start if committed is None else committed), 0)}


def merge_transactions(rows: Iterable[TransactionRow], topics: Sequence[TopicRow]) -> list[TransactionRow]:
    """All transactional ids by name."""
    leader_of = _leaders(topics, TRANSACTION_STATE_TOPIC)
    found: dict[str, list[TransactionRow]] = {}
    for row in rows:
        found.setdefault(row["transactional_id"], []).append(row)
    present = (row for name, of in found.items() for row in _present(of, leader_of(name)))
    return sorted(present, key=lambda row: (row["transactional_id"], row["coordinator"]))


class MergedState:
    """A merged state, for conditions."""

    def __init__(self, state: ClusterStateRow) -> None:
        self._state = state

    def topic(self, name: str) -> TopicRow | None:
        """One topic; None if it does not exist."""
        return next((one for one in self._state["topics"] if one["topic"] == name), None)

    def topics(self) -> Iterator[TopicRow]:
        """Every topic."""
        return iter(self._state["topics"])

    def group(self, name: str) -> GroupRow | None:
        """One group; None if it does not exist."""
        return next((one for one in self._state["groups"] if one["group"] == name), None)

    def nodes(self) -> Iterator[NodeRow]:
        """Every node."""
        return iter(self._state["nodes"])
