"""Tables of a listing: a line of headings, and columns as wide as their content."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Cell = str | int | None
"""An int is aligned to the right, with thousands separators; None is shown as `-`."""


def table_lines(headings: Sequence[str], rows: Iterable[Sequence[Cell]]) -> list[str]:
    """Format rows under their headings; no lines without rows."""
    there = list(rows)
    if not there:
        return []
    columns = [list(column) for column in zip(*there, strict=True)]
    to_right = [all(isinstance(cell, int | None) for cell in column) for column in columns]
    texts = [list(headings), *([_text(cell) for cell in row] for row in there)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return ["  ".join(_pad(line, widths, to_right)).rstrip() for line in texts]


def _pad(line: Sequence[str], widths: Sequence[int], to_right: Sequence[bool]) -> list[str]:
    return [
        text.rjust(width) if right else text.ljust(width)
        for text, width, right in zip(line, widths, to_right, strict=True)
    ]


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    return f"{cell:,}" if isinstance(cell, int) else cell
