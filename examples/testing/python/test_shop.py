"""What the shop and its tills do when all is well, and what they do about each thing that can go wrong."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from shop import NotPlaced, Shop, Till, read

from anabranch.control.client import ControlClient
from anabranch.control.clock_client import ClockClient

Open = Callable[..., Till]


def place(shop: Shop, count: int) -> list[int]:
    for number in range(count):
        shop.place(f"customer-{number}", number)
    return list(range(count))


def billed(servers: str) -> list[int]:
    return sorted(one["amount"] for one in read(servers, "payments") if isinstance(one, dict))


def leader(cluster: ControlClient, topic: str) -> int:
    topics = cluster.state()["topics"]
    return int(next(one for one in topics if one["topic"] == topic)["partitions"][0]["leader"])


def test_orders_are_billed(shop: Shop, till: Open, servers: str) -> None:
    expected = place(shop, 10)
    assert till().bill(10) == 10
    assert billed(servers) == expected


def test_a_leader_that_moved_is_asked_again(cluster: ControlClient, shop: Shop) -> None:
    with cluster.faults(api="Produce", topic="orders", error="NOT_LEADER_OR_FOLLOWER", times=2) as rule:
        assert shop.place("ada", 1) == 0
        assert rule.hits == 2


def test_an_order_whose_answer_is_lost_is_there_once(cluster: ControlClient, shop: Shop, servers: str) -> None:
    with cluster.faults(api="Produce", topic="orders", disconnect="after", times=1, after_work=True):
        shop.place("ada", 1)
    assert len(read(servers, "orders")) == 1


def test_a_slow_broker_is_not_waited_for_without_end(cluster: ControlClient, shop: Shop) -> None:
    with cluster.faults(api="Produce", topic="orders", hold=True) as rule:
        with pytest.raises(NotPlaced):
            shop.place("ada", 1, patience_s=0.5)
        rule.release()
        shop.place("ada", 2)


def test_an_order_is_placed_when_the_brokers_have_it_and_not_before(cluster: ControlClient, shop: Shop) -> None:
    with cluster.faults(api="Produce", topic="orders", hold=True) as rule:
        placing = threading.Thread(target=shop.place, args=("ada", 1))
        placing.start()
        rule.wait_hit()
        assert placing.is_alive() and rule.held == 1
        rule.release()
        placing.join(30)
        assert not placing.is_alive()


def test_two_tills_share_the_work(shop: Shop, till: Open, servers: str) -> None:
    first, second = till("till-1"), till("till-2")
    while len(first.partitions) != 2 or len(second.partitions) != 2:
        first.bill(1, 0.1)
        second.bill(1, 0.1)
    expected = place(shop, 20)
    done: list[int] = []
    tills = [threading.Thread(target=lambda one=one: done.append(one.bill(20, 3))) for one in (first, second)]
    for one in tills:
        one.start()
    for one in tills:
        one.join()
    assert sum(done) == 20 and min(done) > 0
    assert billed(servers) == expected


def test_a_till_goes_on_where_the_one_before_has_stopped(shop: Shop, till: Open, servers: str) -> None:
    place(shop, 3)
    first = till("till-1")
    assert first.bill(3) == 3
    first.close()
    shop.place("customer-3", 3)
    assert till("till-2").bill(1) == 1
    assert billed(servers) == list(range(4))


def test_a_till_that_dies_is_replaced(
    cluster: ControlClient, clock: ClockClient, shop: Shop, servers: str, till: Open
) -> None:
    dead = till("till-1", **{"group.instance.id": "first"})
    dead.bill(1, 0.1)
    while not dead.partitions:
        dead.bill(1, 0.1)
    dead.close()  # a static member does not leave
    place(shop, 3)
    clock.advance("50s")
    cluster.wait_for(group="tills", members=0)
    assert till("till-2").bill(3) == 3


def test_a_till_that_dies_before_its_commit_has_billed_nothing(shop: Shop, till: Open, servers: str) -> None:
    place(shop, 1)
    dead = till("till-1")
    dead.begin(1)
    dead.close()
    assert billed(servers) == []
    assert till("till-1").bill(1) == 1
    assert billed(servers) == [0]


def test_a_transaction_is_not_left_open_for_ever(
    cluster: ControlClient, clock: ClockClient, shop: Shop, till: Open, servers: str
) -> None:
    place(shop, 1)
    till("till-1").begin(1)
    assert cluster.state()["transactions"][0]["state"] == "Ongoing"
    clock.advance("80s")
    assert cluster.state()["transactions"][0]["state"] == "CompleteAbort"
    assert billed(servers) == []


def test_a_coordinator_that_loads_is_waited_for(cluster: ControlClient, shop: Shop, till: Open, servers: str) -> None:
    place(shop, 1)
    with cluster.faults(api="TxnOffsetCommit", error="COORDINATOR_LOAD_IN_PROGRESS", times=2) as rule:
        assert till().bill(1) == 1
        assert rule.hits == 2
    assert billed(servers) == [0]


def test_what_cannot_be_read_does_not_stop_the_till(shop: Shop, till: Open, servers: str) -> None:
    place(shop, 1)
    poison = confluent_kafka.Producer({"bootstrap.servers": servers})
    for value in (b"\xff", b"{}", json.dumps([]).encode()):
        poison.produce("orders", value)
    poison.flush(30)
    place(shop, 2)
    assert till().bill(6) == 6
    assert len(read(servers, "orders.dead")) == 3 and billed(servers) == [0, 0, 1]


def test_a_broker_dies_and_orders_go_on(cluster: ControlClient, shop: Shop, till: Open, servers: str) -> None:
    place(shop, 5)
    only = till()
    assert only.bill(1) == 1
    with cluster.nodes[leader(cluster, "orders")].killed():
        place(shop, 5)
        assert only.bill(9) == 9
    assert billed(servers) == sorted([*range(5), *range(5)])


def test_a_leader_dies_with_an_order_in_its_hands(cluster: ControlClient, shop: Shop, servers: str) -> None:
    said: dict[str, Any] = {"api": "Produce", "topic": "orders", "node": "kill", "after_work": True, "times": 1}
    with cluster.faults(**said):
        shop.place("ada", 1)
    next(one for one in cluster.nodes.values() if not one.running).start()
    assert len(read(servers, "orders")) == 1


def test_the_controller_dies_and_orders_go_on(cluster: ControlClient, shop: Shop, till: Open, servers: str) -> None:
    controller = next(one["node"] for one in cluster.state()["nodes"] if one.get("controller"))
    expected = place(shop, 3)
    only = till()
    assert only.bill(1) == 1
    with cluster.nodes[controller].killed():
        cluster.wait_for(controller="any")
        cluster.create_topic("returns", 2, replicas=2)
        assert only.bill(2) == 2
    assert billed(servers) == expected


def test_orders_become_more_partitions_in_the_middle(
    cluster: ControlClient, shop: Shop, till: Open, servers: str
) -> None:
    first = till()
    place(shop, 10)
    assert first.bill(5) == 5
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_partitions([NewPartitions("orders", 8)])["orders"].result(30)
    cluster.wait_for(topic="orders", partitions=8)
    place(shop, 10)
    assert first.bill(15) == 15
    assert billed(servers) == sorted([*range(10), *range(10)])
