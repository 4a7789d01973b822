"""Conditions for tests to wait for instead of sleeping: on a partition, group, node or topic, or on quiescence.

A condition is parsed from a request's words and evaluated against the state. It describes its unmet part in one line,
which a timeout reports.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypedDict

from anabranch.control import state
from anabranch.control.cluster_changes import Dependencies, PendingWait, changes_of
from anabranch.protocol.suggestion import suggest

if TYPE_CHECKING:
    from anabranch.cluster.in_process import Cluster
    from anabranch.control.state import GroupRow, NodeRow, TopicRow


class StateRows(Protocol):
    """The interface of a cluster's state that conditions are evaluated against."""

    def topic(self, name: str) -> TopicRow | None:
        """One topic; None if it does not exist."""

    def topics(self) -> Iterable[TopicRow]:
        """Every topic."""

    def group(self, name: str) -> GroupRow | None:
        """One group; None if it does not exist."""

    def nodes(self) -> Iterable[NodeRow]:
        """Every node."""


Missing = Callable[[StateRows], str]
"""Returns the unmet part of a condition in one line; empty if it holds."""
LOOK_S: Final = 0.005
"""The delay of an evaluation after a change: changes come in bursts."""
LOOK_SHARE: Final = 10
"""In a cluster that always changes, all waits together use at most 1/`LOOK_SHARE` of the processor."""


class WaitCondition(TypedDict, total=False):
    """A condition as keyword arguments, for type checkers; `WORDS` explains them."""

    topic: str
    partitions: int
    partition: int
    leader: int
    isr: str | int
    high_watermark: int
    group: str
    state: str
    members: int
    lag: int
    node: int
    controller: int | Literal["any"]


WORDS: Final[Mapping[str, str]] = {
    "topic": "this topic exists, and every partition of it has a leader",
    "partitions": "with `topic`: the count of its writable partitions",
    "partition": "with `topic`: check only this partition",
    "leader": "with `topic` and `partition`: this broker leads it",
    "isr": "with `topic`: the in-sync replicas, as 1,2,3; or their least number, as 3+",
    "high_watermark": "with `topic` and `partition`: the least high watermark",
    "group": "this group exists",
    "state": "with `group`: its state, such as Stable or Empty",
    "members": "with `group`: the number of members",
    "lag": "with `group`: its largest lag",
    "node": "this node runs, and all of its replicas are in sync",
    "controller": "this node is the active controller; `any`: some node is",
}


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a cluster."""

    parts: tuple[Missing, ...]
    depends_on: Dependencies

    def missing(self, rows: StateRows) -> str:
        """The unmet part in one line; empty if the condition holds."""
        return next(filter(None, (part(rows) for part in self.parts)), "")


def condition(words: Mapping[str, str]) -> Condition:
    """Parse a request's condition. Raises ValueError with the cause."""
    if unknown := words.keys() - WORDS.keys():
        raise ValueError(f"unknown conditions {', '.join(sorted(unknown))}; {suggest(min(unknown), WORDS)}")
    for word, needed in (
        *((word, "topic") for word in ("partitions", "partition", "isr")),
        *((word, "partition") for word in ("leader", "high_watermark")),
        *((word, "group") for word in ("state", "members", "lag")),
    ):
        if word in words and needed not in words:
            raise ValueError(f"{word} needs {needed}")
    parts: list[Missing] = []
    if "topic" in words:
        parts.append(_topic(words))
    if "group" in words:
        parts.append(_group(words))
    if "node" in words:
        parts.append(_node(_number(words, "node")))
    if "controller" in words:
        parts.append(_controller(words["controller"]))
    if not parts:
        raise ValueError(f"name a condition: {', '.join(WORDS)}")
    depends_on = Dependencies(words.get("topic", ""), all_topics="node" in words, group=words.get("group", ""))
    return Condition(tuple(parts), depends_on)


async def wait(cluster: Cluster, awaited: Condition, timeout_s: float) -> str:
    """Wait until a condition holds. Returns an empty string, or at the timeout the unmet part."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    changes = changes_of(cluster)
    pending, rows = PendingWait(changes, awaited.depends_on), state.LiveRows(cluster)
    try:
        while True:
            pending.listen(cluster)
            began_s = time.perf_counter()
            left = awaited.missing(rows)
            took_s = time.perf_counter() - began_s
            if not left or loop.time() >= deadline_s:
                return left
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline_s):
                    await pending.wait_changed()
                    await asyncio.sleep(max(LOOK_S, took_s * len(changes.waits) * LOOK_SHARE))
    finally:
        pending.end(cluster)


def _number(words: Mapping[str, str], word: str) -> int:
    try:
        return int(words[word])
    except ValueError:
        raise ValueError(f"{word} is a number, not {words[word]!r}") from None


def _topic(words: Mapping[str, str]) -> Missing:
    name = words["topic"]
    numbers = {
        word: _number(words, word) for word in ("partitions", "partition", "leader", "high_watermark") if word in words
    }
    isr = _isr(words["isr"]) if "isr" in words else None

    def missing(rows: StateRows) -> str:
        row = rows.topic(name)
        if row is None:
            return f"there is no topic {name}"
        live = [one for one in row["partitions"] if not one["drains"]]
        if len(live) != numbers.get("partitions", len(live)):
            return f"{name} has {len(live)} partitions"
        chosen = [one for one in live if one["partition"] == numbers.get("partition", one["partition"])]
        if not chosen:
            return f"{name} has no partition {numbers['partition']}"
        return next(filter(None, (_partition(name, one, numbers, isr) for one in chosen)), "")

    return missing


def _partition(
    topic: str, row: Mapping[str, Any], numbers: Mapping[str, int], isr: Callable[[list[int]], bool] | None
) -> str:
    place = f"{topic}-{row['partition']}"
    if row["leader"] < 0:
        return f"{place} has no leader"
    if row["leader"] != numbers.get("leader", row["leader"]):
        return f"{place} is led by {row['leader']}"
    if row["high_watermark"] < numbers.get("high_watermark", 0):
        return f"the high watermark of {place} is {row['high_watermark']}"
    if isr is not None and not isr(row["isr"]):
        return f"the ISR of {place} is {row['isr']}"
    return ""


def _isr(text: str) -> Callable[[list[int]], bool]:
    try:
        if text.endswith("+"):
            least = int(text[:-1])
            return lambda isr: len(isr) >= least
        expected = {int(one) for one in text.split(",")}
    except ValueError:
        raise ValueError(f"isr is a list of ids such as 1,2,3, or a number such as 3+, not {text!r}") from None
    return lambda isr: set(isr) == expected


def _group(words: Mapping[str, str]) -> Missing:
    name = words["group"]
    numbers = {word: _number(words, word) for word in ("members", "lag") if word in words}

    def missing(rows: StateRows) -> str:
        row = rows.group(name)
        if row is None:
            return f"there is no group {name}"
        if row["state"] != words.get("state", row["state"]):
            return f"{name} is {row['state']}"
        if len(row["members"]) != numbers.get("members", len(row["members"])):
            return f"{name} has {len(row['members'])} members"
        return _lag(row, numbers["lag"]) if "lag" in numbers else ""

    return missing


def _lag(row: GroupRow, most: int) -> str:
    if not row["offsets"]:
        return f"{row['group']} has no committed offsets"
    if leaderless := next((one for one in row["offsets"] if one["end"] < 0), None):
        place = f"{leaderless['topic']}-{leaderless['partition']}"
        return f"the lag of {row['group']} is unknown: {place} has no leader"
    return f"{row['group']} has a lag of {row['lag']}" if row["lag"] > most else ""


def _node(node_id: int) -> Missing:
    def missing(rows: StateRows) -> str:
        if not any(row["running"] for row in rows.nodes() if row["node"] == node_id):
            return f"node {node_id} is not running"
        for row in rows.topics():
            for one in row["partitions"]:
                if any(replica["node"] == node_id for replica in one["replicas"]) and node_id not in one["isr"]:
                    return f"node {node_id} is not in sync with {row['topic']}-{one['partition']}"
        return ""

    return missing


def _controller(text: str) -> Missing:
    if text != "any" and not text.isdecimal():
        raise ValueError(f"controller is a node's id or any, not {text!r}")

    def missing(rows: StateRows) -> str:
        active = [row["node"] for row in rows.nodes() if row.get("controller")]
        if not active:
            return "there is no controller"
        return "" if text == "any" or int(text) in active else f"the controller is {active[0]}"

    return missing
