"""The output of `anabranch audit --follow`: a live screen on a terminal, occasional lines elsewhere."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from anabranch.audit.audit_snapshot import AuditSnapshot
from anabranch.audit.findings import violation_text
from anabranch.report.screen import Screen
from anabranch.report.timeline import median

HAND_OFFS_SHOWN: Final = 5
BARS: Final = "▁▂▃▄▅▆▇█"
PLACES: Final = (("before", "delivered before"), ("delivered", "then"), ("next", "delivered next"))


class View(Screen):
    """The view of one audit."""

    def tick(self, snapshot: AuditSnapshot, now_s: float) -> None:
        """Show the current state."""
        self.update(now_s, whole=lambda: screen(snapshot, now_s), line=lambda: line(snapshot, now_s))

    def tell(self, story: Mapping[str, Any]) -> None:
        """Show a violation with all details."""
        self.console.print(violation_line(story))


def line(snapshot: AuditSnapshot, now_s: float) -> str:
    """The audit in one line."""
    if not snapshot.progress:
        return f"{snapshot.topic}: warming up"
    judged = snapshot.judgement
    now = (
        silence_text(snapshot)
        if snapshot.silent
        else f"{snapshot.speed(now_s):,.0f} deliveries/s, {_behind(snapshot, now_s)}"
    )
    return (
        f"{snapshot.topic}: {judged.get('delivered', 0):,} delivered, {judged.get('redelivered', 0):,} redelivered, "
        f"{_wrong(snapshot)}; {now}"
    )


def silence_text(snapshot: AuditSnapshot) -> str:
    """The message while no broker answers; otherwise empty."""
    since = datetime.datetime.fromtimestamp(snapshot.answered_ms / 1000, datetime.UTC)
    return f"no broker has responded since {since:%H:%M:%S} UTC"


def screen(snapshot: AuditSnapshot, now_s: float) -> Panel:
    """The audit on a terminal."""
    judged = snapshot.judgement
    table = Table.grid(padding=(0, 2))
    table.add_row("delivered", f"{judged.get('delivered', 0):,}", f"in {judged.get('keys', 0):,} keys")
    table.add_row("redelivered", f"{judged.get('redelivered', 0):,}", Text("allowed", style="dim"))
    table.add_row("violations", Text(_wrong(snapshot), style="bold red" if snapshot.violations else "green"), "")
    table.add_row(
        "throughput", f"{snapshot.speed(now_s):,.0f}/s" if snapshot.speeds else "-", sparkline(snapshot.speeds)
    )
    if judged.get("waiting"):
        table.add_row("waiting", f"{judged['waiting']:,} records", Text("stored, not delivered yet", style="dim"))
    if judged.get("passed"):
        table.add_row("passed", Text(f"{judged['passed']:,} of these", style="bold red"), "read past, not delivered")
    if snapshot.silent:
        table.add_row("cluster", Text(silence_text(snapshot), style="bold red"), "")
    table.add_row("behind", f"{snapshot.behind:,} records", _behind(snapshot, now_s))
    parts: list[Any] = [table if snapshot.progress else Text("warming up", style="dim")]
    if snapshot.hand_offs:
        parts.append(hand_offs(snapshot))
    parts += [Text(violation_text(story), style="red") for story in snapshot.recent_violations]
    return Panel(Group(*parts), title=f"audit of {snapshot.topic}", width=110)


def hand_offs(snapshot: AuditSnapshot) -> Table:
    """The newest hand-offs, and a typical duration."""
    took = [one.took_ms for one in snapshot.hand_offs]
    table = Table("hand-off", "from", "to", "ms", box=None, padding=(0, 2))
    for one in snapshot.hand_offs[-HAND_OFFS_SHOWN:]:
        table.add_row(one.kind, ", ".join(map(str, one.sources)), str(one.target), f"{one.took_ms:,}")
    table.add_row(f"{len(took)} in all", "", "median", f"{median(took):,}", style="dim")
    return table


def violation_line(story: Mapping[str, Any]) -> Group:
    """A violation with the records around it."""
    table = Table(
        "", "producer", "number", "partition", "offset", "generation", "owner", "time, ms", box=None, padding=(0, 2)
    )
    for name, label in PLACES:
        if name in story:
            place = story[name]
            cells = (place[one] for one in ("sequence", "partition", "offset", "generation", "member", "time_ms"))
            table.add_row(label, f"{place['producer']:016x}" if place["producer"] else "-", *map(str, cells))
    title = f"{str(story['kind']).replace('_', ' ')}, group {story['group']}: {violation_text(story)}"
    return Group(Text(title, style="bold red"), *([table] if table.rows else []))


def sparkline(values: Sequence[float]) -> str:
    """A row of bars."""
    highest = max(values, default=0.0) or 1.0
    return "".join(BARS[min(len(BARS) - 1, int(len(BARS) * value / highest))] for value in values)


def _wrong(snapshot: AuditSnapshot) -> str:
    found = [f"{count:,} {kind.replace('_', ' ')}" for kind, count in snapshot.violations.items()]
    return ", ".join(found) or "no violation"


def _behind(snapshot: AuditSnapshot, now_s: float) -> str:
    if not snapshot.delivered_ms:
        return "nothing delivered yet"
    return f"newest delivery judged {max(now_s - snapshot.delivered_ms / 1000, 0):,.1f} s old"
