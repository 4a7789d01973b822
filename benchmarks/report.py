"""What the benchmarks share: figures with their aims, tables, medians, and a line that shows progress.

Nothing here fails because a machine is slow or busy: an aim that is missed is shown as missed. The exit code speaks of
ratios only, which a busy machine does not change much.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.status import Status
from rich.table import Table

console: Final = Console(highlight=False, width=None if Console().is_terminal else 120)


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the summary."""

    what: str
    aim: str
    reached: str
    peer: str
    met: bool | None = None
    """Whether the aim is reached; None when there is none."""


def working(what: str) -> AbstractContextManager[Status]:
    """Show what is being measured: a spinner on a terminal, a line elsewhere."""
    if not console.is_terminal:
        console.print(f"... {what}", style="dim")
    return console.status(what)


def table(title: str, *columns: str, rows: Iterable[Sequence[str]], note: str = "") -> None:
    """Print a table: the first column is text, the others are numbers."""
    made = Table()
    for number, column in enumerate(columns):
        made.add_column(column, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        made.add_row(*row)
    console.print(title, style="bold")
    console.print(made)
    if note:
        console.print(note, style="dim")


def summary(figures: Iterable[Figure]) -> None:
    """The last table of a run: what was aimed at, and what was reached."""
    made = Table(title="aims, and what this run reached", title_justify="left", title_style="bold")
    for column in ("figure", "aim", "reached", "peer in the same run", ""):
        made.add_column(column)
    for one in figures:
        mark = "" if one.met is None else "[green]met[/]" if one.met else "[yellow]missed[/]"
        made.add_row(one.what, one.aim, one.reached, one.peer, mark)
    console.print(made)


def median(values: Iterable[float]) -> float:
    """The middle one: what a busy machine disturbs least."""
    return statistics.median(values)


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that `percent` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def times(own: float, peer: float) -> str:
    """How many times the peer's figure ours is."""
    ratio = own / peer
    return f"{ratio:.2f}x" if ratio < 10 else f"{ratio:.0f}x"
