"""Elements of SVG pictures as text, and the ticks of an axis. External text is escaped here."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from anabranch.report.page import escape_html

STEPS: Final = (1, 2, 5, 10)


def element(tag: str, *children: str, **attributes: str | float) -> str:
    """Format an element. `children` are markup. An underscore in an attribute's name stands for a hyphen."""
    named = "".join(f' {name.replace("_", "-")}="{_value(value)}"' for name, value in attributes.items())
    return f"<{tag}{named}>{''.join(children)}</{tag}>" if children else f"<{tag}{named}/>"


def text(content: str, x: float, y: float, **attributes: str | float) -> str:
    """Format a line of text."""
    return element("text", escape_html(content), x=x, y=y, **attributes)


def tooltip(content: str) -> str:
    """The child of an element that browsers show when the pointer is over it."""
    return element("title", escape_html(content))


def points(pairs: Iterable[tuple[float, float]]) -> str:
    """Format the corners of a polygon or a line."""
    return " ".join(f"{_value(x)},{_value(y)}" for x, y in pairs)


def ticks(high: float, *, count: int = 4) -> list[float]:
    """Round numbers from 0 on, in at most `count` steps; the last one is not below `high`, or is 1 if `high` is 0."""
    high = high if high > 0 else 1.0
    step = high / count
    power = 10 ** math.floor(math.log10(step))
    step = next(one * power for one in STEPS if one * power >= step * (1 - 1e-9))
    return [round(step * number, 9) for number in range(math.ceil(high / step - 1e-9) + 1)]


def _value(value: str | float) -> str:
    if isinstance(value, str):
        return escape_html(value)
    return f"{value:.1f}".removesuffix(".0")
