"""Parses positions in a log as people write them: an end, an offset, or a time."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final, Literal, cast

from anabranch.protocol.suggestion import suggest

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
End = Literal["earliest", "latest"]
Position = End | int | datetime
"""An end of the log, an offset, or the first record from a time on."""

POSITIONS: Final = "earliest, latest, an offset, a time such as 2026-11-23T10:00, or 15m, 2h, 1d"
"""What may be written, for help and messages."""
AGO: Final = re.compile(r"(\d+)(s|m|h|d)")
DIGITS_MAX: Final = 18
"""The number of digits up to which every number fits an int64."""
AGO_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_position(text: str, *, now: datetime, others: str = "") -> Position:
    """Parse a position. Raises ValueError, which names `others` as values that are possible too."""
    if text in (EARLIEST, LATEST):
        return cast("End", text)
    if text.isdecimal() and len(text) <= DIGITS_MAX:
        return int(text)
    try:
        if ago := AGO.fullmatch(text):
            return datetime.fromtimestamp(now.timestamp() - int(ago[1]) * AGO_S[ago[2]], UTC)
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError, OSError):
        near = suggest(text, (EARLIEST, LATEST))
        suggestion = f"; {near}" if near.startswith("did you mean") else ""
        raise ValueError(f"{POSITIONS}{others}; not {text!r}{suggestion}") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
