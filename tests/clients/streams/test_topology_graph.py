"""A topology is split into the right parts, and invalid uses of state are refused.

Method: topologies are built, and their parts run by hand as in `test_topology.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import pytest

from anabranch.clients.streams.stream import Stream
from anabranch.clients.streams.topology import Topology
from anabranch.clients.streams.topology_graph import INTERNAL
from anabranch.clients.streams.windows import JoinWindows, SessionWindows, TimeWindows
from tests.clients.streams.test_topology import run


def test_steps_sharing_a_store_form_one_subtopology_and_repartition_starts_another() -> None:
    topology = Topology()
    words = topology.stream("lines").map(lambda key, value: (value, value)).repartition("words")
    words.count("counts").to("counts")
    prices = topology.table("prices")
    topology.stream("orders").join(prices, lambda order, price: order).to("bills")
    built = topology.build("app")
    assert [(one.sources, one.stores) for one in built.subtopologies] == [
        (("lines",), ()),
        (("app-words-repartition",), ("counts",)),
        (("orders", "prices"), ("prices-table",)),
    ]
    assert built.repartition_topics == {"app-words-repartition": ("lines",)}
    assert built.subtopology_of("prices").index == 2
    bench = run(topology, ("lines", None, b"w"), ("app-words-repartition", b"w", b"w"))
    assert bench.sent == [(INTERNAL + "words", b"w", b"w"), ("counts", b"w", b"1")]


@pytest.mark.parametrize(
    "use",
    [
        lambda topology, changed: changed.count("s"),
        lambda topology, changed: changed.map_values(len).filter(lambda key, value: True).count("s"),
        lambda topology, changed: changed.join(topology.table("rows", store="s"), lambda one, other: one),
        lambda topology, changed: changed.process(lambda *asked: None, stores=["s"]),
    ],
    ids=["aggregate", "further down", "join", "process"],
)
def test_changed_key_must_be_repartitioned_before_a_store(
    use: Callable[[Topology, Stream], object],
) -> None:
    for change in ("map", "flat_map"):
        topology = Topology()
        stream = topology.stream("in")
        use(topology, stream.map(swap) if change == "map" else stream.flat_map(lambda key, value: [(value, key)]))
        with pytest.raises(ValueError, match=r"keys are changed .* before the store 's', .* put `repartition` between"):
            topology.build("app")
    topology = Topology()
    use(topology, topology.stream("in").map(swap).repartition("r"))
    assert len(topology.build("app").subtopologies) == 2


def swap(key: bytes | None, value: bytes) -> tuple[bytes | None, bytes | None]:
    return value, key


@pytest.mark.parametrize(
    "other",
    [
        lambda topology: topology.table("rows", store="s"),
        lambda topology: topology.stream("rows").count("s"),
        lambda topology: topology.stream("rows").process(lambda *asked: None, stores=["s"]),
    ],
    ids=["table", "aggregate", "process"],
)
def test_store_used_by_two_steps_is_refused(other: Callable[[Topology], object]) -> None:
    topology = Topology()
    topology.stream("in").count("s")
    other(topology)
    with pytest.raises(ValueError, match="two steps use the store 's'"):
        topology.build("app")


def test_custom_steps_may_share_a_store_and_joins_a_table() -> None:
    topology = Topology()
    rows = topology.table("rows", store="s")
    for name in ("a", "b"):
        topology.stream(name).join(rows, lambda one, other: one).process(lambda *asked: None, stores=["own"])
    assert topology.build("app").subtopologies[0].stores == ("own", "s")


def test_topic_of_a_global_table_that_is_read_otherwise_too_is_refused() -> None:
    for declare in (Topology.stream, Topology.table, partial(Topology.global_table, store="other")):
        topology = Topology()
        topology.stream("in")
        topology.global_table("rows")
        declare(topology, "rows")
        with pytest.raises(ValueError, match="read a topic once"):
            topology.build("app")


def test_store_of_a_global_table_belongs_to_no_other_step() -> None:
    topology = Topology()
    topology.global_table("rows", store="s")
    with pytest.raises(ValueError, match="two global tables have the store 's': name another"):
        topology.global_table("more", store="s")
    topology.stream("in").count("s")
    with pytest.raises(ValueError, match="the global table of rows and another step use the store 's'"):
        topology.build("app")


def test_global_table_alone_is_no_application() -> None:
    topology = Topology()
    topology.global_table("rows")
    with pytest.raises(ValueError, match="only global tables"):
        topology.build("app")


def test_join_with_a_global_table_makes_no_subtopology_and_needs_no_repartition() -> None:
    topology = Topology()
    rows = topology.global_table("rows", store="s")
    for name in ("a", "b"):
        moved = topology.stream(name).map(lambda key, value: (value, key))
        moved.join_global(rows, lambda key, value: key, lambda value, row: row).to("out")
    built = topology.build("app")
    assert [(one.sources, one.stores) for one in built.subtopologies] == [(("a",), ()), (("b",), ())]
    assert [(one.sources, one.stores) for one in built.global_tables] == [(("rows",), ("s",))]
    assert built.sources == ("a", "b") and built.describe().endswith("global table s, source rows")


@pytest.mark.parametrize("name", ["../../evil", "a/b", "a\0b", "a b", "x" * 250])
def test_store_or_repartition_with_invalid_topic_name_is_refused_at_build(name: str) -> None:
    counting, repartitioned, everywhere = Topology(), Topology(), Topology()
    everywhere.stream("in")
    everywhere.global_table("rows", store=name)
    counting.stream("in").count(name)
    repartitioned.stream("in").repartition(name)
    for topology in (counting, repartitioned, everywhere):
        with pytest.raises(ValueError, match=r"invalid (topic|store) name"):
            topology.build("app")


@pytest.mark.parametrize("name", [".", ".."])
def test_store_whose_name_is_no_name_of_a_directory_is_refused_at_build(name: str) -> None:
    """It is a part of a legal topic name."""
    counting, everywhere = Topology(), Topology()
    counting.stream("in").count(name)
    everywhere.stream("in")
    everywhere.global_table("rows", store=name)
    for topology in (counting, everywhere):
        with pytest.raises(ValueError, match=f"invalid store name '{re.escape(name)}'"):
            topology.build("app")


def test_entry_of_a_window_belongs_to_the_key_of_its_records() -> None:
    """A resize moves it with them."""
    topology = Topology()
    records = topology.stream("in")
    records.count("plain")
    records.windowed_by(TimeWindows(10)).count("tumbling")
    records.windowed_by(SessionWindows(10)).count("sessions")
    records.join_within(records, JoinWindows(5, 5), max, store="pairs", left=True)
    (part,) = topology.build("app").subtopologies
    assert part.record_key("pairs-this-join-store", b"key" + bytes(12)) == b"key"
    assert part.record_key("pairs-outer-other-join-store", b"key" + bytes(12)) == b"key"
    assert part.record_key("pairs-left-shared-join-store", b"key" + bytes(13)) == b"key"
    assert part.record_key("plain", b"key") == b"key"
    assert part.record_key("tumbling", b"key" + bytes(12)) == b"key"
    assert part.record_key("sessions", b"key" + bytes(16)) == b"key"
