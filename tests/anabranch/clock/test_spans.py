"""Time spans and paces are parsed; invalid ones are refused with an example."""

from __future__ import annotations

import pytest

from anabranch.clock.spans import parse_offset_ms, parse_pace, parse_seconds


def test_durations_are_parsed() -> None:
    assert [parse_seconds(one) for one in ("500ms", "45s", "5m", "2h", "7d", "1.5 s", 3, 0.25)] == [
        *(0.5, 45, 300, 7200, 604800, 1.5, 3, 0.25)
    ]


@pytest.mark.parametrize("said", ["", "45", "-1s", "5 parsecs", "s", True, None, -1, "40000d", float("nan")])
def test_malformed_duration_is_refused(said: object) -> None:
    with pytest.raises(ValueError, match=r"such as 45s|100 years"):
        parse_seconds(said)


def test_paces_are_parsed() -> None:
    assert [parse_pace(one) for one in ("steps", "1x", "10x", "0.5x")] == [0, 1, 10, 0.5]
    for said in ("0x", "10", "fast", "-1x"):
        with pytest.raises(ValueError, match="in `steps`"):
            parse_pace(said)


@pytest.mark.parametrize(
    ("text", "offset_ms"), [("5m", 300_000), ("+5m", 300_000), ("-30s", -30_000), (1.5, 1500), (-2, -2000), (0, 0)]
)
def test_offset_is_ahead_or_behind(text: str | float, offset_ms: int) -> None:
    assert parse_offset_ms(text) == offset_ms


@pytest.mark.parametrize("text", ["5", "--5m", "soon", True, None, 1e12, "-40000d"])
def test_invalid_offset_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"clock|span of time"):
        parse_offset_ms(text)
