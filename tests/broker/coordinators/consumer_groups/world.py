"""Drives one group manually: topics are a dict, the journal is a list, time is a variable."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from anabranch.broker.coordinators.consumer_groups import departure, expressions, heartbeat, regular_expressions
from anabranch.broker.coordinators.consumer_groups.assignment import Assignment
from anabranch.broker.coordinators.consumer_groups.consumer_group import ConsumerGroup
from anabranch.broker.coordinators.consumer_groups.decision import Decision
from anabranch.broker.coordinators.consumer_groups.heartbeat import HeartbeatAnswer, Sender
from anabranch.broker.coordinators.consumer_groups.limits import ConsumerGroupLimits
from anabranch.broker.coordinators.consumer_groups.subscribed_topics import Topic
from anabranch.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.group_records import Record


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


def partitions(**topics: Iterable[int]) -> Assignment:
    """`partitions(orders=(0, 1))` as members and targets have it."""
    return {topic_id(name): frozenset(indexes) for name, indexes in topics.items()}


@dataclass
class Topics:
    """The cluster's topics; another `image` after each change."""

    known: dict[str, tuple[int, ...]] = field(default_factory=dict)
    image: object = field(default_factory=object)
    newest_topic: int = 0

    def make(self, name: str, count: int) -> None:
        self.newest_topic += name not in self.known
        self.known[name] = tuple(range(count))
        self.image = object()

    def find(self, name: str) -> Topic | None:
        return Topic(topic_id(name), name, self.known[name]) if name in self.known else None

    def name_of(self, wanted: bytes) -> str | None:
        return next((name for name in self.known if topic_id(name) == wanted), None)

    def names(self) -> list[str]:
        return list(self.known)


@dataclass
class GroupDriver:
    """One coordinator's view of one group, and everything that it wrote."""

    topics: Topics = field(default_factory=Topics)
    limits: ConsumerGroupLimits = field(default_factory=ConsumerGroupLimits)
    group: ConsumerGroup = field(default_factory=lambda: ConsumerGroup("g"))
    now_ms: int = 1_000
    journal: list[list[Record]] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)

    def take(self, decision: Decision) -> None:
        """The log takes the records."""
        if decision.records:
            self.journal.append(decision.records)
        for record in decision.records:
            self.group.apply(record)
        for act in decision.then:
            act()
        if decision.resolve:
            found = regular_expressions.resolve(
                decision.resolve,
                self.topics.names(),
                lambda name: True,
                version=self.topics.newest_topic,
                now_ms=self.now_ms,
            )
            self.take(
                expressions.apply_resolved(
                    self.group, dict(found), topics=self.topics, limits=self.limits, now_ms=self.now_ms
                )
            )

    def send(self, request: ConsumerGroupHeartbeatRequest, version: int = 1) -> HeartbeatAnswer:
        heartbeat.check_request(request, version, self.limits.assignors)
        sender = Sender(client_id="client", client_host="/1.2.3.4")
        decision = heartbeat.heartbeat(
            self.group, request, sender, topics=self.topics, limits=self.limits, now_ms=self.now_ms
        )
        self.take(decision)
        answer: HeartbeatAnswer = decision.answer
        return answer

    def expire(self) -> list[str]:
        decision, over = departure.fence(self.group, topics=self.topics, limits=self.limits, now_ms=self.now_ms)
        self.take(decision)
        return [member.member_id for member, _ in over]

    def replayed(self) -> ConsumerGroup:
        """What a coordinator that takes over knows."""
        fresh = ConsumerGroup("g")
        for batch in self.journal:
            for record in batch:
                fresh.apply(record)
        return fresh


@dataclass
class Client:
    """A member as a client sees itself. It gives up at once what it is to give up."""

    driver: GroupDriver
    member_id: str
    topics: list[str] | None = None
    regex: str | None = None
    instance_id: str | None = None
    assignor: str | None = None
    epoch: int = 0
    owned: Assignment = field(default_factory=dict)
    said: Assignment | None = None

    def rows(self, owned: Assignment) -> list[TopicPartitions]:
        return [TopicPartitions(topic_id=one, partitions=sorted(owned[one])) for one in owned]

    def request(self, *, full: bool = False, epoch: int | None = None) -> ConsumerGroupHeartbeatRequest:
        epoch = self.epoch if epoch is None else epoch
        full = full or epoch == 0
        changed = full or self.owned != self.said
        return ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=60_000 if full else -1,
            subscribed_topic_names=self.topics if full else None,
            subscribed_topic_regex=self.regex if full else None,
            server_assignor=self.assignor if full else None,
            topic_partitions=self.rows(self.owned) if changed and epoch >= 0 else None,
        )

    def beat(self, *, full: bool = False) -> HeartbeatAnswer:
        owned = self.owned
        answer = self.driver.send(self.request(full=full))
        self.said, self.epoch = owned, answer.epoch
        if answer.assignment is not None:
            self.owned = answer.assignment
        return answer

    def join(self) -> HeartbeatAnswer:
        self.epoch, self.owned, self.said = 0, {}, None
        return self.beat()

    def leave(self, epoch: int = -1) -> HeartbeatAnswer:
        return self.driver.send(self.request(epoch=epoch))


def settle(*clients: Any, rounds: int = 10) -> int:
    """Let all members send heartbeats until nothing changes; return the number of rounds."""
    for count in range(rounds):
        before = [(one.epoch, one.owned, one.said) for one in clients]
        for one in clients:
            one.beat()
        if before == [(one.epoch, one.owned, one.said) for one in clients]:
            return count
    raise AssertionError(f"no end after {rounds} rounds: {clients[0].driver.group.describe()}")


def driver(**limits: int) -> GroupDriver:
    made = GroupDriver(limits=ConsumerGroupLimits(**limits))
    made.topics.make("t", 6)
    return made


def client(drive: GroupDriver, name: str, **rest: object) -> Client:
    return Client(drive, name, **({"topics": ["t"]} | rest))  # type: ignore[arg-type]


def refusal(act: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        act()
    return refused.value.code


def joined(drive: GroupDriver, *names: str, **rest: object) -> list[Client]:
    """Clients that have joined one after another."""
    clients = [client(drive, name, **rest) for name in names]
    for one in clients:
        one.join()
    return clients
