"""Names and documentation of a node's metrics."""

from __future__ import annotations

import re
from pathlib import Path

from anabranch.broker.metrics.family import COUNTER
from anabranch.broker.metrics.node_families import FAMILIES

PAGE = Path(__file__).parents[3] / "docs/metrics.md"


def test_metric_names_follow_prometheus_conventions() -> None:
    """Counters end in _total, units are base units and last, and every metric has a help line."""
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    for family in FAMILIES:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", family.name), family.name
        assert family.name.endswith("_total") == (family.kind == COUNTER), family.name
        assert not re.search(r"_(ms|millis|kb|count)(_|$)", family.name), family.name
        assert family.help.endswith("."), family.name


def test_documentation_names_every_metric() -> None:
    named = set(re.findall(r"`([a-z_]+)`", PAGE.read_text()))
    assert {family.name for family in FAMILIES} <= named
