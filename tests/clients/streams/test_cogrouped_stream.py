"""Several streams share one aggregate per key, and one per window."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.clients.streams.serdes import JSON, TEXT
from anabranch.clients.streams.topology import Topology
from anabranch.clients.streams.topology_test_driver import TopologyTestDriver
from anabranch.clients.streams.windows import SessionWindows, SlidingWindows, TimeWindows, Windows


def visit(key: bytes, page: str, profile: dict[str, Any]) -> dict[str, Any]:
    return {**profile, "pages": [*profile.get("pages", []), page]}


def order(key: bytes, euro: int, profile: dict[str, Any]) -> dict[str, Any] | None:
    return {**profile, "euro": profile.get("euro", 0) + euro} if euro else None


def test_cogrouped_streams_have_one_aggregate_per_key() -> None:
    topology = Topology()
    visits, orders = topology.stream("visits", value=JSON), topology.stream("orders", value=JSON)
    profiles = visits.cogroup(visit).cogroup(orders, order).aggregate("profiles", dict)
    profiles.to("out")
    names = topology.table("names", value=TEXT)
    names.join_table(profiles, lambda name, profile: [name, profile], store="named").to("named")
    assert len(topology.build("app").subtopologies) == 1
    with TopologyTestDriver(topology) as driver:
        for topic, key, value, timestamp_ms in (
            ("names", "k", "Ada", 0),
            ("visits", "k", "a", 9),
            ("orders", "k", 5, 3),
            ("orders", "k", None, 10),
            ("visits", None, "b", 10),
            ("orders", "k", 0, 11),
            ("visits", "k", "c", 4),
        ):
            driver.pipe(topic, key, value, timestamp_ms=timestamp_ms)
        assert [(row.value, row.timestamp_ms) for row in driver.read("out")] == [
            ({"pages": ["a"]}, 9),
            ({"pages": ["a"], "euro": 5}, 9),
            (None, 11),
            ({"pages": ["c"]}, 4),
        ]
        assert driver.read("named")[1].value == ["Ada", {"pages": ["a"], "euro": 5}]


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        (TimeWindows(10, grace_ms=50), [("k@0-10", "a"), ("k@0-10", "ba"), ("k@0-10", "ba-"), ("k@10-20", "c")]),
        (SlidingWindows(5, grace_ms=50), [("k@0-5", "a"), ("k@4-9", "b"), ("k@0-5", "ba"), ("k@7-12", "c")]),
        (SessionWindows(4, grace_ms=50), [("k@3-3", "a"), ("k@3-4", "ba"), ("k@3-5", "ba-"), ("k@12-12", "c")]),
    ],
    ids=["time windows", "sliding windows", "sessions"],
)
def test_cogrouped_streams_have_one_aggregate_per_window(windows: Windows, expected: list[tuple[str, str]]) -> None:
    topology = Topology()
    left, right = topology.stream("left", value=TEXT), topology.stream("right", value=TEXT)
    both = left.cogroup(lambda key, value, text: text + (value or "-"))
    both = both.cogroup(right, lambda key, value, text: value + text)
    merged = both.windowed_by(windows).aggregate("both", str, merge=lambda key, one, other: one + other, value=TEXT)
    present = merged.filter(lambda window, text: text is not None)
    present.map(lambda window, text: (b"%s@%d-%d" % window, text)).to("out")
    with TopologyTestDriver(topology) as driver:
        for topic, value, timestamp_ms in (("left", "a", 3), ("right", "b", 4), ("left", None, 5), ("left", "c", 12)):
            driver.pipe(topic, "k", value, timestamp_ms=timestamp_ms)
        assert [((row.key or b"").decode(), row.value) for row in driver.read("out")] == expected


def test_streams_of_another_topology_cannot_be_cogrouped() -> None:
    cogrouped = Topology().stream("a").cogroup(visit)
    with pytest.raises(ValueError, match="only streams of one topology can be cogrouped"):
        cogrouped.cogroup(Topology().stream("b"), order)
