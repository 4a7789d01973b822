"""What the demonstration shows while it runs: a live screen on a terminal, a line now and then anywhere else."""

from __future__ import annotations

from typing import Final

from rich.console import Console, Group
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from anabranch.demo.progress import Story
from anabranch.report.screen import Screen
from anabranch.report.timeline import Moment

MARKS: Final = {"resize": "green", "kill": "red", "restart": "cyan", "controller": "magenta", "phase": "bold"}


class View(Screen):
    """Shows one story at a time, and every moment as it comes."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._story: Story | None = None

    def follow(self, story: Story) -> None:
        """Show this story from now on."""
        self._story = story

    def tell(self, moment: Moment, at_s: float) -> None:
        """Print something that happened `at_s` seconds after the start."""
        self.console.print(Text(f"{at_s:7.2f} s  "), Text(moment.text, style=MARKS.get(moment.kind, "")), sep="")

    def tick(self, now_s: float) -> None:
        """Show the present state."""
        story = self._story
        if story is not None:
            self.update(now_s, whole=lambda: _screen(story), line=lambda: _line(story, now_s))


def _line(story: Story, now_s: float) -> str:
    closed = sum(len(gates) for gates in story.gates.values())
    return (
        f"{now_s:7.2f} s  {story.topic}: {story.acked:,} of {story.total:,} acknowledged, "
        f"{story.delivered:,} delivered, {closed} gates closed, audit: {audited(story)}"
    )


def audited(story: Story) -> str:
    """The audit so far, in one phrase."""
    if not story.audited:
        return "warming up"
    facts = story.audited
    return f"{facts.get('delivered', 0):,} seen, {facts.get('out_of_order', 0):,} out of order"


def _screen(story: Story) -> Panel:
    table = Table.grid(padding=(0, 2))
    table.add_row("acknowledged", ProgressBar(total=story.total, completed=story.acked, width=50), f"{story.acked:,}")
    table.add_row(
        "delivered", ProgressBar(total=story.total, completed=story.delivered, width=50), f"{story.delivered:,}"
    )
    table.add_row(
        "audited", ProgressBar(total=story.total, completed=story.audited.get("delivered", 0), width=50), audited(story)
    )
    readers = Table("reader", "partitions", "closed gates", box=None, padding=(0, 2))
    for name in sorted(story.assigned):
        partitions = " ".join(map(str, story.assigned[name]))
        readers.add_row(name, partitions, "\n".join(story.gates.get(name, [])) or "-")
    return Panel(Group(table, readers), title=story.topic, width=110)
