"""Drives one streams group manually: topics are a dict, the journal is a list, time is a variable.

After each step, or where coordinators change, the group is read anew from its records, and has to be the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from anabranch.broker.coordinators.consumer_groups.heartbeat import Sender
from anabranch.broker.coordinators.streams_groups import streams_heartbeat
from anabranch.broker.coordinators.streams_groups.streams_admission import check_request
from anabranch.broker.coordinators.streams_groups.streams_decision import StreamsAnswer, StreamsDecision
from anabranch.broker.coordinators.streams_groups.streams_group import StreamsGroup
from anabranch.broker.coordinators.streams_groups.streams_settings import StreamsSettings
from anabranch.broker.coordinators.streams_groups.tasks import ACTIVE, NO_TASKS, STANDBY, Role, Tasks, in_role
from anabranch.protocol.apis.streams_group_heartbeat import (
    CopartitionGroup,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.group_records import Record, decode_value, encode
from anabranch.protocol.internal_topics import decode_key
from tests.broker.coordinators.consumer_groups.world import Topics

COMPARED = (
    *("epoch", "assignment_epoch", "metadata_hash", "validated_topology_epoch", "assignment_configs"),
    *("topology", "members", "targets", "_holders"),
)


def info(name: str, partitions: int = 0) -> TopicInfo:
    return TopicInfo(name=name, partitions=partitions, replication_factor=0, topic_configs=[])


def subtopology(
    name: str = "0",
    *sources: str,
    reads: Mapping[str, int] | None = None,
    sinks: Sequence[str] = (),
    keeps: Sequence[str] = (),
    together: tuple[Sequence[int], Sequence[int]] | None = None,
) -> Subtopology:
    """`reads`: repartition topics with the counts that are set, 0 if none is; `together`: places of what is joined."""
    groups = [] if together is None else [together]
    return Subtopology(
        subtopology_id=name,
        source_topics=list(sources),
        source_topic_regex=[],
        state_changelog_topics=[info(one) for one in keeps],
        repartition_sink_topics=list(sinks),
        repartition_source_topics=[info(one, count) for one, count in (reads or {}).items()],
        copartition_groups=[
            CopartitionGroup(source_topics=list(a), source_topic_regex=[], repartition_source_topics=list(b))
            for a, b in groups
        ],
    )


PLAIN = (subtopology("0", "t"),)
"""Reads a topic, and keeps nothing."""
COUNTS = (subtopology("0", "t", sinks=["words"]), subtopology("1", reads={"words": 0}, keeps=["counts"]))
"""The word count: by way of a repartition topic, into a store."""


def active(**subtopologies: Iterable[int]) -> Tasks:
    """`active(s0=(0, 1))`: tasks of subtopology 0."""
    return {(ACTIVE, name.lstrip("s")): frozenset(indexes) for name, indexes in subtopologies.items()}


def rows(tasks: Tasks, role: Role) -> list[TaskIds]:
    return [TaskIds(subtopology_id=name, partitions=indexes) for name, indexes in in_role(tasks, role)]


@dataclass
class Driver:
    """One coordinator's view of one group, and everything that it wrote."""

    topics: Topics = field(default_factory=Topics)
    settings: StreamsSettings = field(default_factory=StreamsSettings)
    group: StreamsGroup = field(default_factory=lambda: StreamsGroup("g"))
    now_ms: int = 1_000
    journal: list[Record] = field(default_factory=list)
    replays: bool = True
    """Whether the group is read anew after each step."""

    def take(self, decision: StreamsDecision) -> StreamsDecision:
        """The log takes the records."""
        self.journal += decision.records
        for record in decision.records:
            self.group.apply(record)
        for act in decision.then:
            act()
        if self.replays:
            self.replayed()
        return decision

    def replayed(self) -> StreamsGroup:
        """What a coordinator that takes over knows."""
        fresh = StreamsGroup("g")
        for record in self.journal:
            key, content = encode(record)
            read = decode_key(key)
            fresh.apply((read, None if content is None else decode_value(read, content)))
        assert all(getattr(fresh, name) == getattr(self.group, name) for name in COMPARED)
        return fresh

    def fail_over(self) -> None:
        """Another coordinator takes over, with new timers."""
        self.group = self.replayed()
        streams_heartbeat.restart_session_timers(self.group, self.settings, self.now_ms)

    def decided(self, request: StreamsGroupHeartbeatRequest) -> StreamsDecision:
        """What a heartbeat would bring about. Raises KafkaError."""
        check_request(request)
        sender = Sender(client_id="client", client_host="/1.2.3.4")
        return streams_heartbeat.heartbeat(
            self.group, request, sender, topics=self.topics, settings=self.settings, now_ms=self.now_ms
        )

    def send(self, request: StreamsGroupHeartbeatRequest) -> StreamsDecision:
        """A heartbeat, and what comes of it. Raises KafkaError."""
        return self.take(self.decided(request))

    def make_missing(self, decision: StreamsDecision) -> None:
        """Make the topics that are missing."""
        for topic, count in decision.missing:
            self.topics.make(topic.name, count)

    def expire(self) -> list[str]:
        decision, over = streams_heartbeat.fence(
            self.group, topics=self.topics, settings=self.settings, now_ms=self.now_ms
        )
        self.take(decision)
        return [member.member_id for member, _ in over]


@dataclass
class Client:
    """A member as a client sees itself."""

    driver: Driver
    member_id: str
    parts: Sequence[Subtopology] = PLAIN
    process_id: str = ""
    """Its own, unless it is given."""
    epoch: int = 0
    owned: Tasks = field(default_factory=dict)
    said: Tasks | None = None

    def request(self, **more: Any) -> StreamsGroupHeartbeatRequest:
        joins, changed = self.epoch == 0, self.owned != self.said
        if joins:
            more = {
                "rebalance_timeout_ms": 60_000,
                "topology": Topology(epoch=more.pop("topology_epoch", 0), subtopologies=list(self.parts)),
                "process_id": self.process_id or f"process-{self.member_id}",
                "client_tags": [],
            } | more
        if joins or changed:
            more = {
                "active_tasks": rows(self.owned, ACTIVE),
                "standby_tasks": rows(self.owned, STANDBY),
                "warmup_tasks": [],
            } | more
        more = {"member_epoch": self.epoch, "endpoint_information_epoch": 0} | more
        return StreamsGroupHeartbeatRequest(group_id="g", member_id=self.member_id, **more)

    def beat(self, **more: Any) -> StreamsAnswer:
        """Send a heartbeat; apply the response at once, and report it in the next one."""
        owned = self.owned
        decision = self.driver.send(self.request(**more))
        answer: StreamsAnswer = decision.answer
        self.said, self.epoch = owned, answer.epoch
        if answer.assigned is not None:
            self.owned = answer.assigned
        self.driver.make_missing(decision)
        return answer

    def join(self, **more: Any) -> StreamsAnswer:
        self.epoch, self.owned, self.said = 0, NO_TASKS, None
        return self.beat(**more)

    def leave(self) -> StreamsAnswer:
        answer: StreamsAnswer = self.driver.send(
            StreamsGroupHeartbeatRequest(
                group_id="g", member_id=self.member_id, member_epoch=-1, endpoint_information_epoch=0
            )
        ).answer
        return answer

    def refused(self, **more: Any) -> ErrorCode:
        with pytest.raises(KafkaError) as refusal:
            self.driver.send(self.request(**more))
        return refusal.value.code


@pytest.fixture
def driver() -> Driver:
    made = Driver()
    made.topics.make("t", 4)
    return made


def joined(driver: Driver, *names: str, parts: Sequence[Subtopology] = PLAIN) -> list[Client]:
    """Clients that have joined one after another."""
    clients = [Client(driver, name, parts) for name in names]
    for one in clients:
        one.join()
    return clients
