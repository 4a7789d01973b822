"""Parses positions in a log that are values of options."""

from __future__ import annotations

from datetime import datetime

import click

from anabranch.inspect import positions
from anabranch.inspect.positions import EARLIEST, LATEST, Position

__all__ = ["EARLIEST", "LATEST", "Position", "parse_position"]


def parse_position(text: str, *, option: str, now: datetime, others: str = "") -> Position:
    """Parse the value of an option. Raises UsageError, which names `others` as values that the command takes too."""
    try:
        return positions.parse_position(text, now=now, others=others)
    except ValueError as error:
        raise click.UsageError(f"{option} must be {error}") from None
