"""The join of two tables by a foreign key: its results, and that they are the same in every order of internal records.

Method: the test driver processes what a record sends at once; `Scattered` processes records of different keys in a
random order instead, as tasks do that run apart.
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest

from anabranch.clients.streams.failures import RecordFailed
from anabranch.clients.streams.internal_topic_manager import topics_of
from anabranch.clients.streams.partition_grouper import repartition_counts
from anabranch.clients.streams.queries import RangeQuery
from anabranch.clients.streams.query_executor import QueryExecutor
from anabranch.clients.streams.serdes import JSON, TEXT
from anabranch.clients.streams.stream import Table
from anabranch.clients.streams.tasks import Output
from anabranch.clients.streams.topology import Topology
from anabranch.clients.streams.topology_test_driver import TopologyTestDriver

Row = tuple[str, str, Any, int]
"""Topic, key, value and timestamp of a record."""


def joined(topology: Topology, *, left: bool = False, store: str = "named") -> Table:
    """Orders with the names of their customers; an order's value is [customer, item]."""
    orders, customers = topology.table("orders", value=JSON), topology.table("customers", value=TEXT)
    return orders.join_foreign(customers, customer, lambda order, name: [order[1], name], store=store, left=left)


def customer(key: bytes, order: list[Any]) -> bytes | None:
    return None if order[0] is None else order[0].encode()


def results(*records: Row, left: bool = False) -> list[tuple[str, Any, int]]:
    """The results: key, value and timestamp."""
    topology = Topology()
    joined(topology, left=left).to("out")
    with TopologyTestDriver(topology) as driver:
        for topic, key, value, timestamp_ms in records:
            driver.pipe(topic, key, value, timestamp_ms=timestamp_ms)
        return [(row.key.decode(), row.value, row.timestamp_ms) for row in driver.read("out") if row.key is not None]


def test_row_is_joined_with_the_one_that_it_names_and_has_the_higher_timestamp() -> None:
    assert results(
        ("orders", "o1", ["c1", "pen"], 10), ("customers", "c1", "Ann", 30), ("orders", "o2", ["c1", "ink"], 20)
    ) == [("o1", ["pen", "Ann"], 30), ("o2", ["ink", "Ann"], 30)]


def test_change_of_a_row_changes_the_results_of_all_that_name_it() -> None:
    orders = [("orders", f"o{number}", [f"c{number % 2}", number], 10) for number in range(4)]
    names = ("customers", "c0", "Ann", 20), ("customers", "c1", "Bob", 20), ("customers", "c1", "Rob", 5)
    assert results(*orders, *names, ("customers", "c1", None, 40))[4:] == [
        ("o1", [1, "Rob"], 5),
        ("o3", [3, "Rob"], 5),
        ("o1", None, 40),
        ("o3", None, 40),
    ]


def test_row_that_names_another_one_is_joined_with_that_and_forgotten_by_the_first() -> None:
    rows = ("customers", "c1", "Ann", 1), ("customers", "c2", "Bob", 2), ("orders", "o", ["c1", "pen"], 3)
    moved = ("orders", "o", ["c2", "pen"], 4)
    assert results(*rows, moved, ("customers", "c1", "Eve", 5), ("customers", "c2", "Rob", 6)) == [
        ("o", ["pen", "Ann"], 3),
        ("o", ["pen", "Bob"], 4),
        ("o", ["pen", "Rob"], 6),
    ]
    assert results(*rows, ("orders", "o", ["c3", "pen"], 4), ("customers", "c1", "Eve", 5))[1:] == [("o", None, 4)]


def test_foreign_key_is_found_by_its_whole_bytes() -> None:
    rows = ("orders", "1", ["c1", "pen"], 1), ("orders", "c", ["c", "ink"], 1), ("orders", "", ["c11", "cup"], 1)
    assert results(*rows, ("customers", "c1", "Ann", 2), ("customers", "c", "Bob", 3)) == [
        ("1", ["pen", "Ann"], 2),
        ("c", ["ink", "Bob"], 3),
    ]


def test_deleted_row_deletes_its_result() -> None:
    both = ("orders", "o", ["c1", "pen"], 10), ("customers", "c1", "Ann", 30)
    deleted = ("orders", "o", None, 20), ("customers", "c1", "Eve", 40), ("orders", "o", None, 50)
    assert results(*both, *deleted) == [("o", ["pen", "Ann"], 30), ("o", None, 30)]
    assert results(*both, *deleted, left=True)[-2:] == [("o", ["pen", "Ann"], 30), ("o", None, 20)]


def test_inner_join_has_no_result_for_a_row_that_names_none() -> None:
    assert results(("orders", "o", [None, "pen"], 1), ("orders", "o", ["c1", "pen"], 2)) == []
    assert results(("orders", "o", ["c1", "pen"], 1), ("orders", "o", ["c1", "ink"], 2)) == []
    named = ("customers", "c1", "Ann", 1), ("orders", "o", ["c1", "pen"], 2)
    assert results(*named, ("orders", "o", [None, "pen"], 3), ("customers", "c1", "Eve", 4))[1:] == [("o", None, 3)]


def test_deletion_is_handed_on_where_only_another_task_knows_whether_there_was_a_result() -> None:
    """As in Kafka Streams."""
    row = ("orders", "o", ["c1", "pen"], 1)
    assert results(row, ("orders", "o", ["c2", "pen"], 2)) == [("o", None, 2)]
    assert results(row, ("orders", "o", None, 2)) == [("o", None, 2)]
    assert results(row, ("orders", "o", [None, "pen"], 2)) == [("o", None, 2)]
    assert results(row, ("customers", "c1", None, 2)) == [("o", None, 2)]


def test_left_join_has_a_result_for_each_row() -> None:
    rows = ("orders", "o", [None, "pen"], 1), ("orders", "o", ["c1", "pen"], 2), ("customers", "c1", "Ann", 3)
    unnamed = ("customers", "c1", None, 4), ("orders", "o", [None, "pen"], 5), ("customers", "c1", "Eve", 6)
    assert [(value, at) for _, value, at in results(*rows, *unnamed, left=True)] == [
        (["pen", None], 1),
        (["pen", None], 2),
        (["pen", "Ann"], 3),
        (["pen", None], 4),
        (["pen", None], 5),
    ]


def test_table_is_joined_with_itself() -> None:
    topology = Topology()
    people = topology.table("people", value=JSON)
    people.join_foreign(
        people, lambda key, one: one["boss"].encode(), lambda one, boss: [one["name"], boss["name"]], store="bosses"
    ).to("out")
    with TopologyTestDriver(topology) as driver:
        driver.pipe("people", "a", {"name": "Ann", "boss": "a"})
        driver.pipe("people", "b", {"name": "Bob", "boss": "a"})
        driver.pipe("people", "a", {"name": "Eve", "boss": "b"})
        bosses = dict(driver.store("bosses").items())
    assert {key: json.loads(value) for key, value in bosses.items()} == {b"a": ["Eve", "Bob"], b"b": ["Bob", "Eve"]}


def test_result_is_a_table_that_is_joined_further() -> None:
    topology = Topology()
    named = joined(topology)
    items = topology.table("items", value=TEXT)
    priced = named.join_foreign(items, lambda key, row: row[0].encode(), lambda row, euro: [*row, euro], store="priced")
    topology.stream("in", value=TEXT).repartition("in", value=TEXT).join(priced, lambda one, row: [one, *row]).to("out")
    with TopologyTestDriver(topology) as driver:
        driver.pipe("orders", "o", ["c1", "pen"])
        driver.pipe("items", "pen", "2")
        driver.pipe("customers", "c1", "Ann")
        driver.pipe("in", "o", "paid")
        assert [row.value for row in driver.read("out")] == [["paid", "pen", "Ann", "2"]]


def test_inputs_share_no_task_and_internal_topics_of_a_task_are_equally_wide() -> None:
    topology = Topology()
    joined(topology).to("out")
    built = topology.build("app")
    assert [
        [one.removeprefix("app-named-").removesuffix("-repartition") for one in part.sources]
        for part in built.subtopologies
    ] == [
        ["orders"],
        ["customers"],
        ["left", "responses"],
        ["right", "subscriptions"],
    ]
    assert repartition_counts(topics_of(built, "app"), {"orders": range(7), "customers": range(2)}) == {
        "app-named-left-repartition": 7,
        "app-named-responses-repartition": 7,
        "app-named-right-repartition": 2,
        "app-named-subscriptions-repartition": 2,
    }


def test_result_may_share_tasks_with_its_left_side() -> None:
    topology = Topology()
    orders, customers = topology.table("orders", value=JSON), topology.table("customers", value=TEXT)
    named = orders.join_foreign(customers, customer, lambda order, name: name, store="named")
    orders.join_table(named, lambda order, name: [*order, name], store="both").to("out")
    built = topology.build("app")
    together = ("app-named-left-repartition", "app-named-responses-repartition", "orders")
    assert built.subtopology_of("orders").sources == together
    counts = repartition_counts(topics_of(built, "app"), {"orders": range(3), "customers": range(2)})
    assert [counts[topic] for topic in together[:2]] == [3, 3]


def test_subscriptions_cannot_be_queried() -> None:
    topology = Topology()
    joined(topology).to("out")
    nothing: Any = None
    executor = QueryExecutor(topology.build("app"), {}, nothing, nothing, nothing, nothing)
    with pytest.raises(ValueError, match="named-subscriptions has the records of a join, which cannot be queried"):
        executor.execute("named-subscriptions", RangeQuery())


def test_description_names_sides_and_topics() -> None:
    topology = Topology()
    joined(topology).to("out")
    assert topology.build("app").describe().splitlines()[10:] == [
        "subtopology 2, stores named, named-left",
        "  source app-named-left-repartition",
        "    left side of named, sink named-subscriptions",
        "      responses of named",
        "        join named",
        "          sink out",
        "  source app-named-responses-repartition",
        "    -> responses of named of line 14",
        "subtopology 3, stores named-right, named-subscriptions",
        "  source app-named-right-repartition",
        "    right side of named",
        "      sink named-responses",
        "  source app-named-subscriptions-repartition",
        "    subscriptions of named",
        "      -> sink named-responses of line 22",
    ]


def test_wrong_joins_are_refused_with_the_right_ones() -> None:
    topology = Topology()
    orders = joined(topology)
    everywhere: Any = topology.global_table("everywhere")
    with pytest.raises(TypeError, match=r"`join_foreign` needs the result of `Topology.table`"):
        orders.join_foreign(everywhere, customer, lambda one, other: one, store="s")
    with pytest.raises(ValueError, match="only tables of one topology can be joined"):
        orders.join_foreign(Topology().table("t"), customer, lambda one, other: one, store="s")
    with pytest.raises(ValueError, match="two joins have the store 'named': name another one"):
        orders.join_foreign(orders, customer, lambda one, other: one, store="named")


def test_foreign_key_that_is_no_bytes_fails_the_record() -> None:
    topology = Topology()
    table = topology.table("orders", value=JSON)
    wrong: Any = lambda key, order: order[0]  # noqa: E731
    table.join_foreign(table, wrong, lambda order, name: name, store="named")
    with TopologyTestDriver(topology) as driver, pytest.raises(RecordFailed) as failed:
        driver.pipe("orders", "o", ["c1", "pen"])
    assert "returns the key of a row as bytes, or None; it returned 'c1'" in str(failed.value.__cause__)


class Scattered(TopologyTestDriver):
    """Keeps only the order of the records of a topic that have one key."""

    def __init__(self, topology: Topology, rng: random.Random) -> None:
        super().__init__(topology)
        self.rng = rng
        self.waiting: dict[tuple[str, bytes | None], deque[Output]] = {}

    def _process(self, *first: Output) -> None:
        for one in first:
            self.waiting.setdefault((one.topic, one.key), deque()).append(one)

    def _collect(self, outputs: Sequence[Output]) -> list[Output]:
        self._process(*super()._collect(outputs))
        return []

    def settle(self, *first: str) -> None:
        """Process all that waits in these topics, then the rest."""
        while self.waiting:
            self.work([place for place in sorted(self.waiting) if place[0] in first])

    def work(self, places: Sequence[tuple[str, bytes | None]] = ()) -> None:
        """Process one record that waits, in one of these places if any are given."""
        place = self.rng.choice(places or sorted(self.waiting))
        queue = self.waiting[place]
        super()._process(queue.popleft())
        if not queue:
            del self.waiting[place]


def test_result_of_a_deleted_row_that_is_set_again_before_its_deletion_comes_back_is_deleted() -> None:
    """Kafka Streams drops that deletion as outdated, and has no response to a new row that is joined with none."""
    topology = Topology()
    joined(topology).to("out")
    with Scattered(topology, random.Random(1)) as driver:
        driver.pipe("customers", "c1", "Ann")
        driver.pipe("orders", "o", ["c1", "pen"])
        driver.settle("customers", "test-named-right-repartition")
        driver.pipe("orders", "o", None)
        driver.pipe("orders", "o", ["c2", "ink"])
        driver.settle("orders", "test-named-left-repartition")
        assert [row.value for row in driver.read("out")] == [["pen", "Ann"], None]


def scatter(seed: int, *, left: bool) -> int:
    """Change both tables at random, and check the results; return how many there were."""
    rng = random.Random(seed)
    topology = Topology()
    orders, customers = topology.table("orders", value=JSON), topology.table("customers", value=TEXT)
    orders.join_foreign(customers, customer, lambda order, name: [*order, name], store="named", left=left).to("out")
    last: dict[str, dict[str, Any]] = {"orders": {}, "customers": {}}
    steps = [rng.choice(["orders", "customers", "work", "work", "work", "work"]) for _ in range(200)]
    with Scattered(topology, rng) as driver:
        for number, step in enumerate(steps):
            if step == "work":
                if driver.waiting:
                    driver.work()
                continue
            key = f"{step[0]}{rng.randrange(2)}"
            value: Any = None
            if rng.random() < 0.7:
                # A value of an order may come again; names are numbers, and only grow.
                named = rng.choice([None, "c0", "c1", "c1"])
                value = [named, rng.choice([number, 0])] if step == "orders" else f"{number:03}"
            last[step][key] = value
            driver.pipe(step, key, value, timestamp_ms=number)
        driver.settle()
        sent = driver.read("out")
        stored = {key.decode(): json.loads(value) for key, value in driver.store("named").items()}
    expected = {
        key: [*order, name]
        for key, order in last["orders"].items()
        if order is not None and ((name := last["customers"].get(order[0])) is not None or left)
    }
    assert stored == expected, f"seed {seed}"
    newest: dict[tuple[Any, Any], str] = {}
    for row in sent:
        if row.value is not None and (name := row.value[2]) is not None:
            pair = row.key, row.value[0]
            assert name >= newest.get(pair, ""), f"seed {seed}: {pair} was joined with a newer row before {name}"
            newest[pair] = name
    return len(sent)


@pytest.mark.parametrize("left", [False, True], ids=["inner", "left"])
def test_results_are_those_of_the_last_rows_in_any_order_of_internal_records(left: bool) -> None:
    assert sum(scatter(seed, left=left) for seed in range(60)) > 500
