"""The parts of a self-contained HTML page that begins with the verdict.

Parts are strings of HTML; external text (keys, names of topics, errors) is escaped here.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple


class Id(NamedTuple):
    """A long identifier: shown by its first and last characters, whole as a tooltip."""

    whole: str
    head: int = 7
    """How many of the first characters are shown."""


Cell = str | int | float | Id | None

GOOD: Final = "good"
BAD: Final = "bad"
ID_TAIL: Final = 4
"""How many of the last characters of an identifier are shown."""
CALM: Final = ""

STYLE: Final = """
:root { --ink: #1d2430; --soft: #5d6878; --line: #e3e7ee; --good: #12794a; --bad: #b3261e; --paper: #fff; }
* { box-sizing: border-box; }
body { font: 15px/1.55 system-ui, -apple-system, "Segoe UI", "Helvetica Neue", "DejaVu Sans", sans-serif;
       color: var(--ink); background: #f5f6f8; margin: 0; }
main { max-width: 1120px; margin: 0 auto; padding: 28px 20px 60px; }
header { border-radius: 14px; padding: 26px 30px 24px; color: #fff; margin-bottom: 18px; background: #3c4656; }
header.good { background: linear-gradient(120deg, #0b5a37, #178a57); }
header.bad { background: linear-gradient(120deg, #7d1a15, #c0392b); }
header p { margin: 0; }
header .eyebrow { text-transform: uppercase; letter-spacing: .09em; font-size: 12px; opacity: .85; }
header h1 { font-size: 27px; line-height: 1.25; font-weight: 650; margin: 6px 0 8px; }
header .sub { opacity: .92; max-width: 60em; }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 12px; padding: 20px 24px 22px;
          margin-bottom: 18px; overflow-x: auto; }
h2 { font-size: 18px; margin: 0 0 4px; } h3 { font-size: 15px; margin: 18px 0 4px; }
.lead { color: var(--soft); margin: 0 0 12px; max-width: 72em; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(112px, 1fr)); gap: 12px; margin-bottom: 18px; }
.card { background: var(--paper); border: 1px solid var(--line); border-radius: 12px; padding: 12px 14px; }
.card b { display: block; font-size: 23px; font-weight: 650; font-variant-numeric: tabular-nums; line-height: 1.3; }
.card span { color: var(--soft); font-size: 13px; display: block; line-height: 1.35; }
.card.good b { color: var(--good); } .card.bad { border-color: var(--bad); } .card.bad b { color: var(--bad); }
table { border-collapse: collapse; font-size: 14px; }
th { color: var(--soft); font-weight: 500; text-align: left; font-size: 13px; }
td, th { padding: 5px 18px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child td { border-bottom: 0; } tr.mark td { background: #fdeceb; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
code { font: 13px/1.5 ui-monospace, Menlo, "DejaVu Sans Mono", monospace; }
td.good { color: var(--good); font-weight: 600; } td.bad { color: var(--bad); font-weight: 600; }
.story { border-left: 3px solid var(--bad); padding: 2px 0 2px 16px; margin: 16px 0 4px; }
.story p { margin: 0 0 6px; } details { margin-top: 10px; } summary { cursor: pointer; color: var(--soft); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 20px; margin: 0; } dt { font-weight: 600; }
dd { margin: 0; color: var(--soft); } footer { color: var(--soft); font-size: 13px; text-align: center; }
svg.plot { display: block; width: 100%; min-width: 720px; font: 12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif;
           fill: var(--ink); }
.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; margin: 4px 0 10px 74px; font-size: 12px; }
.legend i { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin-right: 6px; }
abbr { text-decoration: none; cursor: help; }
@media print { body { background: #fff; } section { break-inside: avoid; } }
"""


class Card(NamedTuple):
    """A large figure with its label."""

    value: str
    label: str
    tone: str = CALM


def page(title: str, parts: Iterable[str], *, footer: str = "") -> str:
    """The whole page."""
    return (
        "<!doctype html>\n<html lang=en><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width, initial-scale=1">'
        f"<title>{escape_html(title)}</title><style>{STYLE}</style>"
        f"<body><main>{''.join(parts)}<footer>{escape_html(footer)}</footer></main></body></html>\n"
    )


def headline(eyebrow: str, verdict: str, sub: str, tone: str) -> str:
    """The top of the page: the verdict, and a sentence below it."""
    return (
        f"<header class='{tone}'><p class=eyebrow>{escape_html(eyebrow)}</p><h1>{escape_html(verdict)}</h1>"
        f"<p class=sub>{escape_html(sub)}</p></header>"
    )


def cards(found: Iterable[Card]) -> str:
    """Cards side by side."""
    made = (
        f"<div class='card {one.tone}'><b>{escape_html(one.value)}</b><span>{escape_html(one.label)}</span></div>"
        for one in found
    )
    return f"<div class=cards>{''.join(made)}</div>"


def section(title: str, lead: str, *parts: str) -> str:
    """A section: its heading, a sentence about its content, and its parts."""
    introduction = f"<p class=lead>{escape_html(lead)}</p>" if lead else ""
    return f"<section><h2>{escape_html(title)}</h2>{introduction}{''.join(parts)}</section>"


def table(
    columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, marked: Sequence[int] = (), right: Sequence[int] = ()
) -> str:
    """A table. Numbers are aligned right, words left, except in the columns `right`; rows `marked` are highlighted."""
    made = []
    numeric = [True] * len(columns)
    for number, row in enumerate(rows):
        numeric = [was and _is_number(cell) for was, cell in zip(numeric, row, strict=True)]
        cells = "".join(
            f"<td{' class=n' if _is_number(cell) or place in right else ''}>{format_cell(cell)}</td>"
            for place, cell in enumerate(row)
        )
        made.append(f"<tr{' class=mark' if number in marked else ''}>{cells}</tr>")
    heads = "".join(
        f"<th{' class=n' if is_number and made else ''}>{escape_html(name)}</th>"
        for name, is_number in zip(columns, numeric, strict=True)
    )
    head = f"<thead><tr>{heads}</tr></thead>" if any(columns) else ""
    return f"<table>{head}<tbody>{''.join(made)}</tbody></table>"


def definitions(pairs: Iterable[tuple[str, str]]) -> str:
    """A list of terms and their meanings."""
    return f"<dl>{''.join(f'<dt>{escape_html(word)}</dt><dd>{escape_html(text)}</dd>' for word, text in pairs)}</dl>"


def collapsible(label: str, body: str) -> str:
    """A part that is collapsed until the reader opens it."""
    return f"<details><summary>{escape_html(label)}</summary>{body}</details>"


def format_cell(cell: Cell) -> str:
    """A cell's value as text."""
    if cell is None:
        return "-"
    if isinstance(cell, Id):
        return abbreviate(cell)
    if isinstance(cell, bool | str):
        return escape_html(str(cell))
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:,.1f}"


def abbreviate(one: Id) -> str:
    """A long identifier as HTML, shortened."""
    if len(one.whole) <= one.head + ID_TAIL + 1:
        return escape_html(one.whole)
    short = f"{one.whole[: one.head]}…{one.whole[-ID_TAIL:]}"
    return f"<abbr title='{escape_html(one.whole)}'>{escape_html(short)}</abbr>"


def escape_html(text: str) -> str:
    """Escape the characters that HTML reads as markup."""
    return html.escape(text)


def _is_number(cell: Cell) -> bool:
    return isinstance(cell, int | float) or cell is None
