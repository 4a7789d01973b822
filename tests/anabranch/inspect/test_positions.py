"""Goal: a position in a log is an end, an offset or a time; the refusal says what is possible."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from anabranch.inspect.positions import parse_position

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)


def test_positions_are_parsed() -> None:
    assert [parse_position(text, now=NOW) for text in ("latest", "90")] == ["latest", 90]
    assert parse_position("90m", now=NOW) == datetime(2026, 11, 23, 10, 30, tzinfo=UTC)


@pytest.mark.parametrize("text", ["lastest", "9" * 30, "-3", "", "9" * 20 + "d"])
def test_malformed_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="an offset, a time"):
        parse_position(text, now=NOW)
