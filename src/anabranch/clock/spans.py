"""Parses time spans (500ms, 45s, 5m, 2h, 7d) and paces of a clock (10x)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

UNITS_S: Final[Mapping[str, float]] = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
SPAN_MAX_S: Final = 36525 * 86400.0
STEPS: Final = "steps"
"""The pace of a clock that moves only by `advance`."""


def parse_seconds(text: object) -> float:
    """Parse a span such as "45s", or a number of seconds. ValueError if it is invalid."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        found = float(text)
    else:
        words = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", str(text))
        if words is None or words[2] not in UNITS_S:
            raise ValueError(f"a span of time is a number and one of {', '.join(UNITS_S)}, such as 45s, not {text!r}")
        found = float(words[1]) * UNITS_S[words[2]]
    if not 0 <= found <= SPAN_MAX_S:
        raise ValueError(f"a span of time is 0 seconds to 100 years, not {text}")
    return found


def parse_offset_ms(text: object) -> int:
    """Parse how far a clock is ahead, "5m" or seconds, or behind, "-30s", into milliseconds. ValueError."""
    if isinstance(text, int | float):
        return round(1000 * math.copysign(parse_seconds(abs(text) if text < 0 else text), text))
    words = str(text).strip()
    ahead_s = parse_seconds(words[1:] if words[:1] in ("+", "-") else words)
    return round(-1000 * ahead_s if words.startswith("-") else 1000 * ahead_s)


def parse_pace(text: str) -> float:
    """Parse a pace, "10x" or "steps", into cluster seconds per real second. ValueError if it is invalid."""
    if text == STEPS:
        return 0.0
    words = re.fullmatch(r"(\d+(?:\.\d+)?)x", text)
    if words is None or float(words[1]) == 0:
        raise ValueError(f"a clock runs at 1x, 10x or 0.5x, or in `{STEPS}`, not {text!r}")
    return float(words[1])
