"""Parses ISO-8601 durations of days, hours, minutes and seconds: `PT1H`, `P7D`, `P1DT12H30M`, `PT0.5S`.

Months and years have no fixed length, so they are refused, as by Java's Duration. Pure.
"""

from __future__ import annotations

import re
from typing import Final

UNITS_MS: Final = (86_400_000, 3_600_000, 60_000, 1000)
DURATION: Final = re.compile(
    r"P(?=\d|T\d)(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?", re.ASCII | re.IGNORECASE
)


def parse_duration_ms(text: str) -> int:
    """Return a duration in milliseconds. Raises ValueError for other text, and for negative durations."""
    found = DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not an ISO-8601 duration such as PT1H or P7D")
    return int(sum(float(count) * unit for count, unit in zip(found.groups(), UNITS_MS, strict=True) if count))
