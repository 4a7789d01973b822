"""The events of a replay, collected from its processes, for the live view and the report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.demo.child_process import Line
from anabranch.report.timeline import Moment


@dataclass(slots=True)
class Story:
    """One replay, from its first record to its verdict. Times are times of day in ms."""

    topic: str
    total: int
    began_ms: int = 0
    ended_ms: int = 0
    sent: int = 0
    acked: int = 0
    failed: int = 0
    moments: list[Moment] = field(default_factory=list)
    acked_by_partition: dict[int, int] = field(default_factory=dict)
    acked_series: list[tuple[int, dict[int, int]]] = field(default_factory=list)
    """(time, acknowledged records per partition)."""
    delivered_by_reader: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    """Reader -> partition -> the number of its records up to the furthest that the reader has delivered."""
    delivered_series: list[tuple[int, int]] = field(default_factory=list)
    """(time, delivered records)."""
    assigned: dict[str, list[int]] = field(default_factory=dict)
    gates: dict[str, list[str]] = field(default_factory=dict)
    openings: list[dict[str, Any]] = field(default_factory=list)
    """Opened gates: key epoch, closed_ms, opened_ms, reader."""
    crossings: list[tuple[int, str, tuple[int, ...]]] = field(default_factory=list)
    """(time, reader, partitions read up to a cut, whose keys the next owner may now read)."""
    audited: dict[str, Any] = field(default_factory=dict)
    verdict: dict[str, Any] = field(default_factory=dict)
    examples: list[dict[str, Any]] = field(default_factory=list)
    """The first violations, as the audit reports them."""

    @property
    def delivered(self) -> int:
        """The number of delivered records. Those that a reader repeats after a failure count once."""
        furthest: dict[int, int] = {}
        for counts in self.delivered_by_reader.values():
            for partition, count in counts.items():
                furthest[partition] = max(count, furthest.get(partition, 0))
        return sum(furthest.values())

    def note(self, t_ms: int, kind: str, text: str, label: str = "") -> Moment:
        """Add an action on the cluster, or an event in it, at a time of day."""
        moment = Moment(t_ms, kind, text, label)
        self.moments.append(moment)
        return moment

    def take(self, name: str, line: Line) -> None:
        """Add an output line of a process."""
        event, t_ms = line.get("event"), int(line.get("t", 0))
        if event in ("progress", "done") and "acked" in line:
            self._take_replay(t_ms, line)
        elif event == "progress" and "delivered" in line:
            self.delivered_by_reader[name] = _by_partition(line["delivered"])
            self.assigned[name] = list(line["assigned"])
            self.gates[name] = list(line["gates"])
            self.delivered_series.append((t_ms, self.delivered))
        elif event == "opened":
            self.openings.append({**line, "reader": name})
        elif event == "revoked":
            self.crossings.append((t_ms, name, tuple(line["partitions"])))

    def closed_ms(self) -> list[int]:
        """How long each gate was closed, as in the plot. Includes the lag of the previous readers."""
        return [int(opening["opened_ms"]) - int(opening["closed_ms"]) for opening in self.openings]

    def hand_offs_ms(self) -> list[tuple[str, int]]:
        """(key_epoch, ms from the last crossing before the gate opened to its opening): the cost of the hand-off
        itself.

        A gate is also closed while the old partition is being read; that time is lag, not hand-off.
        """
        found: list[tuple[str, int]] = []
        for opening in self.openings:
            before = [t_ms for t_ms, _, _ in self.crossings if t_ms <= opening["opened_ms"]]
            started_ms = max([opening["closed_ms"], *before[-1:]])
            found.append((str(opening["key_epoch"]), int(opening["opened_ms"]) - started_ms))
        return found

    def _take_replay(self, t_ms: int, line: Line) -> None:
        self.sent, self.acked, self.failed = int(line["sent"]), int(line["acked"]), int(line["failed"])
        self.acked_by_partition = _by_partition(line["by_partition"])
        self.acked_series.append((t_ms, dict(self.acked_by_partition)))


def _by_partition(counts: Mapping[str, int]) -> dict[int, int]:
    return {int(index): int(count) for index, count in counts.items()}
