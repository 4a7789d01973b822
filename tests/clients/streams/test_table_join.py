"""The join of two tables: its results, their timestamps, and what a deletion does."""

from __future__ import annotations

import pytest

from anabranch.clients.streams.serdes import JSON, TEXT, Serde
from anabranch.clients.streams.topology import Topology
from anabranch.clients.streams.topology_test_driver import TopologyTestDriver

Row = tuple[str, str | None, int]
"""Topic, value and timestamp of a record of the key k."""


def results(*records: Row, left: bool = False, outer: bool = False) -> list[tuple[str | None, int]]:
    """The results, and their timestamps."""
    topology = Topology()
    names, prices = topology.table("names", value=TEXT), topology.table("prices", value=TEXT)
    names.join_table(
        prices, lambda name, price: f"{name} at {price}", store="offers", left=left, outer=outer, value=TEXT
    ).to("offers", value=TEXT)
    with TopologyTestDriver(topology) as driver:
        for topic, value, timestamp_ms in records:
            driver.pipe(topic, "k", value, timestamp_ms=timestamp_ms)
        sent = driver.read("offers", value=TEXT)
        last = driver.store("offers").get(b"k")
    assert last == (sent[-1].value.encode() if sent and sent[-1].value is not None else None)
    return [(one.value, one.timestamp_ms) for one in sent]


def test_result_changes_with_either_row_and_has_the_higher_timestamp() -> None:
    assert results(("names", "pen", 10), ("prices", "2", 30), ("names", "ink", 20), ("prices", "3", 5)) == [
        ("pen at 2", 30),
        ("ink at 2", 30),
        ("ink at 3", 20),
    ]


def test_deleted_row_deletes_the_result_of_an_inner_join() -> None:
    both = ("names", "pen", 10), ("prices", "2", 30)
    assert results(*both, ("prices", None, 40), ("names", "ink", 50)) == [("pen at 2", 30), (None, 40)]
    assert results(*both, ("names", None, 40), ("names", None, 41)) == [("pen at 2", 30), (None, 40), (None, 41)]


def test_left_join_has_a_result_for_each_row_of_the_left_side() -> None:
    assert results(("prices", "2", 10), ("names", "pen", 20), ("prices", None, 30), ("names", None, 40), left=True) == [
        ("pen at 2", 20),
        ("pen at None", 30),
        (None, 40),
    ]
    assert results(("names", None, 10), ("prices", "2", 20), ("prices", None, 30), left=True) == []


def test_outer_join_has_a_result_for_each_row_of_either_side() -> None:
    rows = ("prices", "2", 10), ("names", "pen", 20), ("prices", None, 30), ("names", None, 40), ("prices", None, 50)
    assert results(*rows, outer=True) == [
        ("None at 2", 10),
        ("pen at 2", 20),
        ("pen at None", 30),
        (None, 40),
    ]


@pytest.fixture
def topology() -> Topology:
    return Topology()


def test_result_is_a_table_that_others_are_joined_with(topology: Topology) -> None:
    one, third = (topology.table(name, value=TEXT) for name in ("one", "third"))
    other = topology.table("other", value=JSON)
    pairs = one.join_table(other, lambda a, b: a + b["b"], store="pairs", value=TEXT)
    pairs.join_table(third, lambda ab, c: ab + c, store="triples", value=TEXT).to("triples", value=TEXT)
    topology.stream("in", value=TEXT).join(pairs, lambda value, pair: f"{value}:{pair}").to("out", value=TEXT)
    built = topology.build("app")
    assert len(built.subtopologies) == 1
    assert built.subtopologies[0].stores == ("one-table", "other-table", "pairs", "third-table", "triples")
    with TopologyTestDriver(topology) as driver:
        for topic, value, timestamp_ms in (
            ("one", "a", 10),
            ("third", "c", 5),
            ("other", {"b": "b"}, 30),
            ("in", "x", 1),
        ):
            driver.pipe(topic, "k", value, timestamp_ms=timestamp_ms)
        driver.pipe("one", "k", "A", timestamp_ms=20)
        driver.pipe("third", "k", "C", timestamp_ms=6)
        triples = [("abc", 30), ("Abc", 30), ("AbC", 30)]
        assert [(row.value, row.timestamp_ms) for row in driver.read("triples", value=TEXT)] == triples
        assert [row.value for row in driver.read("out", value=TEXT)] == ["x:ab"]


def joined_with_one_made_of_it(topology: Topology, **kind: bool) -> list[str | None]:
    """The results of a table, joined with its join with another one, when its row is set and deleted."""
    one, other = (topology.table(name, value=TEXT) for name in ("one", "other"))
    pairs = one.join_table(other, lambda a, b: a + b, store="pairs", value=TEXT)
    one.join_table(pairs, lambda a, ab: f"{a}:{ab}", store="again", value=TEXT, **kind).to("out", value=TEXT)
    with TopologyTestDriver(topology) as driver:
        for topic, value in (("other", "b"), ("one", "a"), ("one", None)):
            driver.pipe(topic, "k", value)
        return [row.value for row in driver.read("out", value=TEXT)]


def test_outer_join_with_a_table_made_of_this_one_hands_a_deletion_on_from_both_sides(topology: Topology) -> None:
    assert joined_with_one_made_of_it(topology, outer=True) == ["a:ab", "a:ab", None, None]


def test_inner_join_with_a_table_made_of_this_one_keeps_the_result_of_a_deleted_row(topology: Topology) -> None:
    assert joined_with_one_made_of_it(topology) == ["a:ab", "a:ab"]


def test_left_join_with_a_table_made_of_this_one_deletes_the_result_of_a_deleted_row(topology: Topology) -> None:
    assert joined_with_one_made_of_it(topology, left=True) == ["a:ab", "a:ab", None]


def test_values_before_are_looked_up_where_a_join_asks_for_them(topology: Topology) -> None:
    decoded: list[bytes] = []
    serde = Serde(str.encode, lambda raw: decoded.append(raw) or raw.decode())
    one, other, third = (topology.table(name, value=serde) for name in ("one", "other", "third"))
    pairs = one.join_table(other, lambda a, b: a + b, store="pairs", value=TEXT)
    with TopologyTestDriver(topology) as driver:
        for value in ("a", "A"):
            driver.pipe("one", "k", value)
    assert decoded == [b"a", b"A"], "each input is decoded, and no row before"
    pairs.join_table(third, lambda ab, c: f"{ab}:{c}", store="triples", value=TEXT, left=True)
    decoded.clear()
    with TopologyTestDriver(topology) as driver:
        for value in ("a", "A"):
            driver.pipe("one", "k", value)
    assert decoded == [b"a", b"A", b"a"]


def test_table_is_not_joined_with_itself_or_with_one_of_another_topology(topology: Topology) -> None:
    table = topology.table("t")
    with pytest.raises(
        ValueError, match=r"the table 't-table' would be joined with itself, and the result .* map_values"
    ):
        table.join_table(table, lambda a, b: a, store="s")
    with pytest.raises(ValueError, match="only tables of one topology can be joined"):
        table.join_table(Topology().table("t"), lambda a, b: a, store="s")


def test_two_joins_need_two_stores(topology: Topology) -> None:
    one, other, third = (topology.table(name) for name in ("one", "other", "third"))
    one.join_table(other, lambda a, b: a, store="s")
    one.join_table(third, lambda a, b: a, store="s")
    with pytest.raises(ValueError, match="two steps use the store 's'"):
        topology.build("app")
