"""The demonstration's output while it runs: a live screen on a terminal, occasional lines elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from anabranch.demo.progress import Story
from anabranch.report.screen import Screen
from anabranch.report.timeline import Moment

PLAIN_EVERY_S: Final = 2.5
"""Without a terminal nobody waits longer than 3 s for a line: a state is due on the first tick after this time."""
MARKS: Final = {"resize": "green", "kill": "red", "restart": "cyan", "controller": "magenta", "phase": "bold"}


class View(Screen):
    """Shows one story at a time, and every event as it happens."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, plain_every_s=PLAIN_EVERY_S)
        self._story: Story | None = None
        self._waits: dict[str, float] = {}
        """Awaited condition -> start of the wait, in seconds after the start."""
        self._latest, self._latest_s = "starting", 0.0
        """The latest event, and its time in seconds after the start."""

    @contextlib.contextmanager
    def waiting_for(self, what: str, now_s: Callable[[], float]) -> Iterator[None]:
        """Show an awaited condition, and how long it has been awaited, while the block runs."""
        self._waits[what] = now_s()
        try:
            yield
        finally:
            del self._waits[what]

    def follow(self, story: Story) -> None:
        """Show this story from now on."""
        self._story = story

    def tell(self, moment: Moment, at_s: float) -> None:
        """Print an event that happened `at_s` seconds after the start."""
        self.console.print(Text(f"{at_s:7.2f} s  "), Text(moment.text, style=MARKS.get(moment.kind, "")), sep="")
        self._latest, self._latest_s = moment.text, at_s
        self.postpone(at_s)

    def tick(self, now_s: float) -> None:
        """Show the current state."""
        story = self._story
        waits = [f"waiting for {what}, {now_s - since_s:.0f} s" for what, since_s in self._waits.items()]
        if story is None and not waits:
            waits = [f"{self._latest}, {now_s - self._latest_s:.0f} s ago"]
        self.update(now_s, whole=lambda: _screen(story, waits), line=lambda: _line(story, waits, now_s))


def _line(story: Story | None, waits: Sequence[str], now_s: float) -> str:
    if story is None:
        return f"{now_s:7.2f} s  {'; '.join(waits)}"
    closed = sum(len(gates) for gates in story.gates.values())
    state = (
        f"{now_s:7.2f} s  {story.topic}: {story.acked:,} of {story.total:,} acknowledged, "
        f"{story.delivered:,} delivered, {closed} gates closed, audit: {audit_phrase(story)}"
    )
    return "; ".join([state, *waits])


def audit_phrase(story: Story) -> str:
    """The audit so far, in one phrase."""
    if not story.audited:
        return "warming up"
    facts = story.audited
    return f"{facts.get('delivered', 0):,} seen, {facts.get('out_of_order', 0):,} out of order"


def _screen(story: Story | None, waits: Sequence[str]) -> RenderableType:
    if story is None:
        return Text("\n".join(waits))
    table = Table.grid(padding=(0, 2))
    table.add_row("acknowledged", ProgressBar(total=story.total, completed=story.acked, width=50), f"{story.acked:,}")
    table.add_row(
        "delivered", ProgressBar(total=story.total, completed=story.delivered, width=50), f"{story.delivered:,}"
    )
    table.add_row(
        "audited",
        ProgressBar(total=story.total, completed=story.audited.get("delivered", 0), width=50),
        audit_phrase(story),
    )
    readers = Table("reader", "partitions", "closed gates", box=None, padding=(0, 2))
    for name in sorted(story.assigned):
        partitions = " ".join(map(str, story.assigned[name]))
        readers.add_row(name, partitions, "\n".join(story.gates.get(name, [])) or "-")
    return Panel(Group(table, readers, *map(Text, waits)), title=story.topic, width=110)
