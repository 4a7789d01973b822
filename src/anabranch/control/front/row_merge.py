"""Merges the dashboard rows that the nodes of a cluster report into one set of rows. Pure.

A topic comes from the node with its newest metadata, and its cuts from the leaders. The log of a replica comes from
that replica, the high watermark and the ISR of a partition from its leader, a group and a transactional id from the
coordinator. A frozen node reports nothing new: only its own logs are taken from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from anabranch.dashboard.state_delta import kind_of

Rows = Mapping[str, Any]
Reported = Mapping[int, Any]
"""Node -> the row that it reports."""
NEWEST_BY: Final[Mapping[str, str]] = {"group": "generation", "transaction": "producer_epoch"}
"""The kind of a row -> the field that is highest at its present coordinator."""
OWN: Final = ("node", "gate", "rule", "clock")
"""Kinds of rows that are not merged by key: the front makes them itself."""


def merge_row(key: str, reported: Reported, frozen: Iterable[int] = ()) -> Any:
    """Merge the rows of one key; None if no node has it.

    Args:
        key: The key.
        reported: The row of each node that has one.
        frozen: The frozen nodes.
    """
    live = {node: row for node, row in reported.items() if node not in set(frozen)}
    kind = kind_of(key)
    if not live or kind in OWN:
        return None
    if kind == "topic":
        return _topic(live)
    if kind == "partition":
        return _partition(live, reported)
    field = NEWEST_BY.get(kind)
    return max(live.values(), key=lambda row: row[field]) if field else next(iter(live.values()))


def _topic(rows: Reported) -> Any:
    newest = max(rows.values(), key=lambda row: (row["generation"], row["partitions"]))
    cuts = {tuple(cut) for row in rows.values() for cut in row["cuts"]}
    return {**newest, "cuts": [list(cut) for cut in sorted(cuts)]}


def _partition(rows: Reported, logs: Reported) -> Any:
    newest = max(rows.values(), key=lambda row: (row["epoch"], row["hw"]))
    leader = rows.get(newest["leader"], {"hw": -1})
    leads = leader["hw"] >= 0
    return {
        **newest,
        "isr": leader["isr"] if leads else newest["isr"],
        "hw": leader["hw"] if leads else -1,
        "generation": leader["generation"] if leads else newest["generation"],
        "replicas": [_log(node, logs.get(node)) for node, _, _ in newest["replicas"]],
    }


def _log(node: int, row: Any) -> list[int]:
    """A replica's log, as its own node reports it."""
    own = [] if row is None else [one for one in row["replicas"] if one[0] == node]
    return own[0] if own else [node, -1, -1]


def merge_traffic(reported: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Add up the traffic of several nodes."""
    apis: dict[str, list[float]] = {}
    nodes: dict[str, int] = {}
    span_s = 0.0
    for one in reported:
        span_s = max(span_s, one["span"])
        nodes.update(one["nodes"])
        for api, (count, mean_ms, work_ms, longest_ms) in one["apis"].items():
            sums = apis.setdefault(api, [0, 0.0, 0.0, 0.0])
            sums[0] += count
            sums[1] += count * mean_ms
            sums[2] += count * work_ms
            sums[3] = max(sums[3], longest_ms)
    means = {
        api: [count, round(total / count, 3), round(work / count, 3), longest]
        for api, (count, total, work, longest) in sorted(apis.items())
        if count
    }
    return {"span": span_s, "apis": means, "nodes": nodes}
