"""librdkafka with `group.protocol=consumer` on a cluster with profile 4.1 whose coordinators die."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from anabranch.testing.clusters import Clusters
from anabranch.testing.running_cluster import RunningCluster

PATIENCE_S = 60.0
RECORDS = 600


@pytest.fixture(scope="module")
def kafka() -> Iterator[RunningCluster]:
    properties = {
        "group.consumer.heartbeat.interval.ms": "200",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
    }
    with Clusters() as clusters, clusters.running(brokers=3, kafka="4.1", properties=properties) as cluster:
        yield cluster


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


class Member(threading.Thread):
    """A consumer in a thread; it notes what it is handed, and what it owns."""

    def __init__(self, kafka: RunningCluster, group: str, topics: list[str], **more: Any) -> None:
        super().__init__(daemon=True)
        self.records: list[tuple[int, int]] = []
        self.owned: set[int] = set()
        self.ending = threading.Event()
        self._topics = topics
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.interval.ms": 1000,
                "log_level": 0,
                **more,
            }
        )
        self.start()

    def run(self) -> None:
        def assigned(_: Any, partitions: list[Any]) -> None:
            self.owned |= {one.partition for one in partitions}

        def revoked(_: Any, partitions: list[Any]) -> None:
            self.owned -= {one.partition for one in partitions}

        self._consumer.subscribe(self._topics, on_assign=assigned, on_revoke=revoked, on_lost=revoked)
        while not self.ending.is_set():
            message = self._consumer.poll(0.1)
            if message is None:
                continue
            if message.error() is None:
                self.records.append((message.partition(), message.offset()))
            elif message.error().code() == KafkaError.NOT_COORDINATOR:
                self._take_again()
        self._consumer.close()

    def _take_again(self) -> None:
        """Look up the start offset again: after this OffsetFetch response librdkafka does not (issue 5586)."""
        mine = self._consumer.assignment()
        self._consumer.incremental_unassign(mine)
        self._consumer.incremental_assign(mine)

    def stop(self) -> None:
        self.ending.set()
        self.join(PATIENCE_S)
        assert not self.is_alive()


def produce(kafka: RunningCluster, topic: str, count: int) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True, "log_level": 0}
    )
    for number in range(count):
        producer.produce(topic, f"{number}", partition=number % 6)
    assert producer.flush(PATIENCE_S) == 0


def coordinator_of(kafka: RunningCluster, group: str) -> int | None:
    return next((row["coordinator"] for row in kafka.control.state()["groups"] if row["group"] == group), None)


def shared(members: list[Member]) -> bool:
    """Whether every partition has one owner, and the assignment is balanced."""
    owned = Counter(one for member in members for one in member.owned)
    return owned == Counter(range(6)) and max(len(one.owned) for one in members) == 6 // len(members)


def test_members_join_and_leave_during_coordinator_failovers(kafka: RunningCluster) -> None:
    topic = kafka.topic(partitions=6)
    members: list[Member] = []
    try:
        tell(kafka, topic, members)
    finally:
        for member in members:
            member.stop()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})

    def is_empty() -> bool:
        """librdkafka does not repeat a leave that a coordinator refused; then the member's session has to end."""
        description = admin.describe_consumer_groups(["g"])["g"].result(PATIENCE_S)
        return (description.state.name, description.type.name, description.members) == ("EMPTY", "CONSUMER", [])

    until(is_empty, "every member has left")


def test_member_whose_offset_fetch_was_refused_continues(kafka: RunningCluster) -> None:
    """Forces a coordinator change between a heartbeat and its OffsetFetch."""
    topic = kafka.topic(partitions=6)
    produce(kafka, topic, RECORDS)
    with kafka.control.faults(api="OffsetFetch", error="NOT_COORDINATOR", times=1):
        member = Member(kafka, "sent-away", [topic])
        try:
            until(lambda: len(set(member.records)) == RECORDS, "everything is read")
        finally:
            member.stop()


def tell(kafka: RunningCluster, topic: str, members: list[Member]) -> None:
    members += [Member(kafka, "g", [topic]) for _ in range(2)]
    until(lambda: shared(members), "two share")
    produce(kafka, topic, RECORDS)
    died = coordinator_of(kafka, "g")
    assert died is not None
    with kafka.nodes[died].killed():
        until(lambda: coordinator_of(kafka, "g") not in (None, died), "a successor")
        members.append(Member(kafka, "g", [topic]))
        until(lambda: shared(members), "three share, at another coordinator")
        produce(kafka, topic, RECORDS)
    died = coordinator_of(kafka, "g")
    assert died is not None
    with kafka.nodes[died].killed():
        leaver = members.pop(0)
        leaver.stop()
        seen = set(leaver.records)  # not earlier: what it reads while it stops is committed, and nobody else gets it
        until(lambda: shared(members), "two share again, at a third one")
        produce(kafka, topic, RECORDS)
    expected = {(index, offset) for index in range(6) for offset in range(3 * RECORDS // 6)}
    until(lambda: seen.union(*(one.records for one in members)) >= expected, "everything is read")
