"""What the demonstration shows while it runs: a live screen on a terminal, a line now and then anywhere else."""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from anabranch.demo.story import Story
from anabranch.report.timeline import Moment

MOMENTS_SHOWN: Final = 12
PLAIN_EVERY_S: Final = 5.0
MARKS: Final = {"resize": "green", "kill": "red", "restart": "cyan", "controller": "magenta", "phase": "bold"}


class View:
    """Shows one story at a time, and every moment as it comes."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._story: Story | None = None
        self._began_s = 0.0
        self._moments: deque[tuple[float, Moment]] = deque(maxlen=MOMENTS_SHOWN)
        self._live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        self._plain_due_s = 0.0

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def follow(self, story: Story) -> None:
        """From now on this story."""
        self._story = story

    def tell(self, moment: Moment, at_s: float) -> None:
        """Something happened, `at_s` seconds after the start."""
        self._moments.append((at_s, moment))
        self.console.print(Text(f"{at_s:7.2f} s  "), Text(moment.text, style=MARKS.get(moment.kind, "")), sep="")

    def tick(self, now_s: float) -> None:
        """Show where things stand."""
        story = self._story
        if story is None:
            return
        if self._live is not None:
            self._live.update(_screen(story))
        elif now_s >= self._plain_due_s:
            self._plain_due_s = now_s + PLAIN_EVERY_S
            closed = sum(len(gates) for gates in story.gates.values())
            self.console.print(
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
