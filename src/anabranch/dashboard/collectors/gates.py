"""Collects closed gates for the dashboard, from the rows of groups, topics and partitions. Pure.

A gate depends on the lineage of a topic, its cuts, which their leaders know, and the committed offsets, which the
group's coordinator knows. These may be different processes, so the rows are the input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from anabranch.clients.group_gates import closed_gates
from anabranch.clients.metadata import Partition, Topic
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.lineage import KeyEpoch, Lineage
from anabranch.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from anabranch.dashboard.state_delta import StateSheet

Rows = Mapping[str, Any]
Sources = tuple[Any, ...]
"""The input rows of a group's gates: the same objects mean the same gates."""
EVENT: Final = ("group", "topic", "partition", "generation", "offset")
"""The fields of a gate's events."""
SHARE: Final = "share"
"""The protocol of share groups, which have no gates."""
NO_ID: Final = bytes(16)


class GateCollector:
    """Collects the rows of closed gates, and reports each gate that closes or opens.

    Args:
        tell: Called with the kind and the details of an event.
    """

    def __init__(self, tell: Callable[..., None]) -> None:
        self._tell = tell
        self._gates: dict[str, tuple[Sources, dict[str, Any]]] = {}
        self._looked = False

    def collect(self, sheet: StateSheet) -> None:
        """Put a row for each closed gate, from the other rows of the sheet."""
        rows = sheet.rows
        groups = {key.removeprefix("group/"): row for key, row in rows.items() if key.startswith("group/")}
        for name, group in groups.items():
            commits = {} if group["protocol"] == SHARE else rows.get(f"commits/{name}", {})
            topics = [row for row in (rows.get(f"topic/{one}") for one in commits) if row is not None and row["starts"]]
            sources = (commits, *((row, _epochs(rows, row)) for row in topics))
            known = self._gates.get(name)
            if known is not None and known[0] == sources:
                continue
            found = {key: row for topic in topics for key, row in _gates_of(rows, name, topic, commits).items()}
            for key, row in found.items():
                sheet.put(key, row)
            before = {} if known is None else known[1]
            if self._looked:  # otherwise nobody knows when they closed
                self._report("gate closed", found, before)
                self._report("gate opened", before, found)
            self._gates[name] = sources, found
        for name in self._gates.keys() - groups.keys():
            del self._gates[name]
        sheet.keep("gate", {key for _, gates in self._gates.values() for key in gates})
        self._looked = True

    def _report(self, kind: str, there: Rows, others: Rows) -> None:
        for key, row in there.items():
            if key not in others:
                self._tell(kind, **{name: row[name] for name in EVENT})


def _epochs(rows: Rows, topic: Rows) -> tuple[int, ...]:
    """The leader epochs of a topic's partitions."""
    return tuple(
        rows.get(f"partition/{topic['topic']}/{index}", {"epoch": -1})["epoch"] for index, _ in topic["starts"]
    )


def _gates_of(rows: Rows, group: str, row: Rows, commits: Rows) -> dict[str, Any]:
    """The closed gates of one topic for one group."""
    topic, name = _as_client(rows, row), row["topic"]
    ends = {KeyEpoch(index, generation): end for index, generation, end in row["cuts"] if index in topic.partitions}
    committed = {TopicPartition(at, int(index)): offset for at in commits for index, offset in commits[at].items()}
    return {
        f"gate/{group}/{name}/{gate.partition.partition}": {
            "group": group,
            "topic": name,
            "partition": gate.partition.partition,
            "generation": gate.generation,
            "offset": gate.offset,
            "waits": [[one.partition.partition, one.end, one.committed] for one in gate.blockers],
        }
        for gate in closed_gates(topic, ends, committed, None)
    }


def _as_client(rows: Rows, row: Rows) -> Topic:
    """A topic as its metadata shows it to a client."""
    partitions = {}
    for (index, starts), epoch in zip(row["starts"], _epochs(rows, row), strict=True):
        gen_start = tuple((generation, first) for generation, first in starts)
        partitions[index] = Partition(index, -1, epoch, (), (), ErrorCode.NONE, gen_start)
    history = tuple((generation, count) for generation, count in row["history"])
    return Topic(row["topic"], NO_ID, partitions, lineage=Lineage(row["base"], history))
