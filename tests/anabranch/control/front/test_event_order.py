"""Events of several nodes get one order: by epochs where there are any, else by clocks."""

from __future__ import annotations

import random
from typing import Any

from anabranch.control.front.event_order import EventOrder, NodeEvent


def merged(*events: NodeEvent, until_s: float = 1000.0) -> list[NodeEvent]:
    order = EventOrder()
    for one in events:
        order.add(one)
    return list(order.take(until_s))


def event(source: int, at_s: float, kind: str = "tick", **detail: Any) -> NodeEvent:
    return NodeEvent(source, at_s, kind, detail)


def led(source: int, at_s: float, epoch: int, topic_id: str = "A", partition: int = 0) -> NodeEvent:
    where = {"topic": "t", "topic_id": topic_id, "partition": partition}
    return event(source, at_s, "leader", **where, leader=1, leader_epoch=epoch)


def in_sync(source: int, at_s: float, epoch: int, partition_epoch: int) -> NodeEvent:
    where = {"topic": "t", "topic_id": "A", "partition": 0}
    return event(source, at_s, "isr", **where, isr=[1], leader_epoch=epoch, partition_epoch=partition_epoch)


def elected(source: int, at_s: float, epoch: int) -> NodeEvent:
    return event(source, at_s, "elected", controller=source, epoch=epoch)


def test_events_without_epochs_are_ordered_by_clocks() -> None:
    first, second, third = event(2, 1.0), event(1, 2.0), event(2, 3.0)
    assert merged(second, first, third) == [first, second, third]


def test_events_of_one_node_keep_their_order_whatever_its_clock_says() -> None:
    first, second, other = event(1, 5.0), event(1, 2.0), event(2, 3.0)
    assert merged(first, second, other) == [other, first, second]


def test_events_of_controllers_are_ordered_by_controller_epoch_against_the_clocks() -> None:
    old, new, later = elected(1, 9.0, 4), elected(2, 8.0, 5), event(2, 8.5)
    assert merged(new, later, old) == [old, new, later]


def test_events_before_one_of_a_lower_epoch_come_first_too() -> None:
    before, old, new = event(1, 8.5), elected(1, 9.0, 4), elected(2, 8.0, 5)
    assert merged(new, before, old) == [before, old, new]


def test_a_lower_epoch_is_taken_with_the_higher_one_though_its_time_has_not_come() -> None:
    old, new = elected(1, 9.0, 4), elected(2, 8.0, 5)
    assert merged(new, old, until_s=8.5) == [old, new]


def test_contradicting_epochs_leave_the_order_of_each_node() -> None:
    new, old_leader = elected(1, 1.0, 5), led(1, 2.0, 0)
    new_leader, old = led(2, 1.5, 1), elected(2, 2.5, 4)
    found = merged(new, old_leader, new_leader, old)
    assert [one for one in found if one.source == 1][:1] == [new]
    assert found.index(new_leader) < found.index(old)


def test_leader_that_every_node_reports_is_kept_once() -> None:
    reports = [led(node, 1.0 + node / 10, 3) for node in (3, 1, 2)]
    assert merged(*reports) == [reports[1]]


def test_late_report_of_a_known_leader_is_dropped() -> None:
    order = EventOrder()
    order.add(led(1, 1.0, 3))
    assert len(list(order.take(2.0))) == 1
    order.add(led(2, 5.0, 3))
    order.add(led(2, 6.0, 2))
    order.add(led(2, 7.0, 4))
    assert [one.detail["leader_epoch"] for one in order.take(9.0)] == [4]


def test_isr_is_kept_once_per_version() -> None:
    found = merged(*(in_sync(node, at_s, 1, int(at_s)) for node in (1, 2) for at_s in (1.0, 2.0, 3.0)))
    assert [one.detail["partition_epoch"] for one in found] == [1, 2, 3]


def test_topic_that_was_created_again_has_its_own_epochs() -> None:
    found = merged(led(1, 1.0, 7, "A"), led(1, 2.0, 0, "B"))
    assert [one.detail["leader_epoch"] for one in found] == [7, 0]


def test_partitions_are_not_compared_with_each_other() -> None:
    found = merged(led(1, 1.0, 7, partition=0), led(2, 2.0, 0, partition=1))
    assert [one.detail["leader_epoch"] for one in found] == [7, 0]


def test_events_after_the_moment_wait() -> None:
    order = EventOrder()
    order.add(event(1, 1.0))
    order.add(event(1, 3.0))
    assert len(list(order.take(2.0))) == 1
    assert order.oldest_s == 3.0
    assert len(list(order.take(3.0))) == 1
    assert order.oldest_s is None


def test_random_interleavings_lose_nothing_and_keep_every_certain_order() -> None:
    rng = random.Random(7)
    for _ in range(50):
        epochs = sorted(rng.sample(range(100), 12))
        whose = {epoch: rng.randrange(3) for epoch in epochs}
        streams: dict[int, list[NodeEvent]] = {0: [], 1: [], 2: []}
        for at_s, epoch in enumerate(epochs):
            streams[whose[epoch]] += [elected(whose[epoch], at_s + rng.uniform(-3, 3), epoch), event(9, at_s)]
        streams = {
            source: [NodeEvent(source, one.at_s, one.kind, one.detail) for one in rows]
            for source, rows in streams.items()
        }
        order, found = EventOrder(), list[NodeEvent]()
        for rows in streams.values():
            for one in rows:
                order.add(one)
        found = list(order.take(1000.0))
        assert [one.detail["epoch"] for one in found if one.kind == "elected"] == epochs
        for source, rows in streams.items():
            assert [one for one in found if one.source == source] == rows
