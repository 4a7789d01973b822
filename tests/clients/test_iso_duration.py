"""Durations are parsed like Java's Duration."""

from __future__ import annotations

import pytest

from anabranch.clients.iso_duration import parse_duration_ms


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("PT1H", 3_600_000),
        ("P7D", 604_800_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("pt30m", 1_800_000),
        ("PT0.25S", 250),
        ("PT0S", 0),
    ],
)
def test_iso_duration_is_parsed_to_milliseconds(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text) == duration_ms


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "1H", "PT1", "P1Y", "P1M", "-PT1H", "PT-1H", "PT1H ", "PT1.5H"]
)
def test_malformed_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an ISO-8601 duration"):
        parse_duration_ms(text)
