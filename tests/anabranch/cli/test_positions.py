"""Position options accept an end, an offset or a time; anything else is refused with a hint."""

from __future__ import annotations

from datetime import UTC, datetime

import click
import pytest

from anabranch.cli.positions import Position, parse_position

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("90", 90),
        ("90m", datetime(2026, 11, 23, 10, 30, tzinfo=UTC)),
        ("2026-11-23T10:00", datetime(2026, 11, 23, 10, tzinfo=UTC)),
        ("2026-11-23T10:00+02:00", datetime(2026, 11, 23, 8, tzinfo=UTC)),
    ],
)
def test_position_is_parsed(text: str, position: Position) -> None:
    assert parse_position(text, option="--to", now=NOW) == position


@pytest.mark.parametrize(
    ("text", "reason"),
    [("lastest", "did you mean latest?"), ("5w", "not '5w'"), ("9" * 20 + "d", "--to must be"), ("-3", "not '-3'")],
)
def test_malformed_position_is_refused(text: str, reason: str) -> None:
    with pytest.raises(click.UsageError, match=reason.replace("?", r"\?")):
        parse_position(text, option="--to", now=NOW)
