"""Elements are well-formed whatever their content, and axes have round numbers."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from anabranch.report import svg


def test_external_text_is_escaped_in_svg() -> None:
    drawn = svg.element("g", svg.tooltip("a < b & c"), svg.text("<i>", 1, 2.25, text_anchor="end"))
    group = ET.fromstring(drawn)
    assert [one.text for one in group] == ["a < b & c", "<i>"]
    assert group[1].attrib == {"x": "1", "y": "2.2", "text-anchor": "end"}
    assert svg.element("line", x1=0.04, x2=1e6) == '<line x1="0" x2="1000000"/>'


@pytest.mark.parametrize(
    ("high", "expected"),
    [
        (3600, [0, 1000, 2000, 3000, 4000]),
        (0.3, [0, 0.1, 0.2, 0.3]),
        (1, [0, 0.5, 1]),
        (4000, [0, 1000, 2000, 3000, 4000]),
        (0, [0, 0.5, 1]),
    ],
)
def test_ticks_are_round_and_reach_the_highest_value(high: float, expected: list[float]) -> None:
    assert svg.ticks(high) == expected
