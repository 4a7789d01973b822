"""The common parts of benchmarks: figures with their targets, tables, medians, and a progress line.

Nothing fails because a machine is slow or busy: a missed target is shown as missed. The exit code depends only on
ratios, which a busy machine does not change much.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.status import Status
from rich.table import Table

CURVE_WIDTH: Final = 50
"""The width of the longest bar, in characters."""
console: Final = Console(highlight=False, width=None if Console().is_terminal else 120)


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the summary."""

    what: str
    aim: str
    reached: str
    peer: str
    met: bool | None = None
    """Whether the target is met; None without one."""


def working(what: str) -> AbstractContextManager[Status]:
    """Show the current measurement: a spinner on a terminal, a line elsewhere."""
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


def curve(title: str, points: Sequence[tuple[str, float]], *, unit: str, logarithmic: bool = False) -> None:
    """Draw values as bars, one per line."""
    console.print(f"{title}, {unit}{', logarithmic' if logarithmic else ''}", style="bold")
    lengths = _lengths([value for _, value in points], logarithmic=logarithmic)
    width = max((len(label) for label, _ in points), default=0)
    for (label, value), length in zip(points, lengths, strict=True):
        console.print(f"  {label:>{width}} [cyan]{'█' * length}[/]{'' if length else '▏'} {value:,.4g}")


def _lengths(values: Sequence[float], *, logarithmic: bool) -> list[int]:
    """The lengths of the bars. On a logarithmic scale every nonzero bar is visible."""
    positive = [value for value in values if value > 0]
    if not positive:
        return [0 for _ in values]
    if not logarithmic:
        return [round(CURVE_WIDTH * max(value, 0) / max(positive)) for value in values]
    low, high = math.log(min(positive) / 2), math.log(max(positive))
    return [round(CURVE_WIDTH * (math.log(value) - low) / (high - low)) if value > 0 else 0 for value in values]


def distribution(title: str, values: Sequence[float], *, unit: str) -> None:
    """Draw the cumulative distribution of the values."""
    if values:
        points = [(f"p{percent}", percentile(values, percent)) for percent in (10, 25, 50, 75, 90, 95, 99)]
        curve(title, [*points, ("max", max(values))], unit=unit, logarithmic=True)


def summary(figures: Iterable[Figure]) -> None:
    """Print the last table of a run: targets and results."""
    made = Table(title="aims, and what this run reached", title_justify="left", title_style="bold")
    for column in ("figure", "aim", "reached", "peer in the same run", ""):
        made.add_column(column)
    for one in figures:
        mark = "" if one.met is None else "[green]met[/]" if one.met else "[yellow]missed[/]"
        made.add_row(one.what, one.aim, one.reached, one.peer, mark)
    console.print(made)


def run_benchmark(
    doc: str | None,
    measure: Callable[..., Iterable[Figure]],
    arguments: Sequence[str] | None,
    **options: tuple[float | Sequence[int], str],
) -> int:
    """Measure with these options of the command line, each with its default and help; print the figures."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    for name, (default, text) in options.items():
        several = isinstance(default, Sequence)
        help_text = f"{text} (default: {' '.join(map(str, default)) if several else default})"
        kind = int if several else type(default)
        parser.add_argument(f"--{name}", type=kind, nargs="+" if several else None, default=default, help=help_text)
    figures = measure(*vars(parser.parse_args(arguments)).values())
    console.print()
    summary(figures)
    return 0


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that `percent` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def times(own: float, peer: float) -> str:
    """The ratio of this package's figure to the peer's, as text."""
    ratio = own / peer
    return f"{ratio:.2f}x" if ratio < 10 else f"{ratio:.0f}x"
