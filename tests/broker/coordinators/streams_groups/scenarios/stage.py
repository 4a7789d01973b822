"""What a scenario of a group of Kafka Streams may say (`README.md` lists it), and what each phrase does.

Around the real group stand threads of an application that know what they were told, and a journal: a list of records,
written and read in their real encoding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from anabranch.broker.coordinators.classic_groups.group_events import Commit
from anabranch.broker.coordinators.consumer_groups.assignment import within
from anabranch.broker.coordinators.streams_groups import streams_administration, streams_heartbeat
from anabranch.broker.coordinators.streams_groups.streams_decision import StreamsDecision
from anabranch.broker.coordinators.streams_groups.streams_group import StreamsGroup
from anabranch.broker.coordinators.streams_groups.streams_settings import StreamsSettings
from anabranch.broker.coordinators.streams_groups.tasks import ACTIVE, STANDBY, Tasks, each
from anabranch.protocol.apis.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)
from tests.broker.coordinators.heartbeat_stage import HeartbeatStage
from tests.broker.coordinators.streams_groups.scenarios import rendering
from tests.broker.coordinators.streams_groups.world import Driver, rows, subtopology
from tests.scenario_text import NotUnderstood, phrase

FILES: Final = sorted(Path(__file__).parent.glob("*.txt"))
JOINING: Final = 0
LEAVING: Final = -1


@dataclass
class Thread:
    """A thread of an instance of the application: what it was told last, and what it runs."""

    name: str
    process_id: str
    topology_epoch: int = 0
    epoch: int = JOINING
    told: Tasks = field(default_factory=dict)
    has: Tasks = field(default_factory=dict)
    """What it runs: it goes on with what it was told to give up until the scenario says that it did."""
    said: Tasks | None = None
    """What it said last that it has; None after a failure: it says all of it again."""

    def forget(self) -> None:
        """It runs nothing, and has to join."""
        self.epoch, self.told, self.has, self.said = JOINING, {}, {}, None

    def request(self, epoch: int, parts: Sequence[Subtopology], **more: Any) -> StreamsGroupHeartbeatRequest:
        """A heartbeat; with the topology, if it joins."""
        if epoch == JOINING:
            topology = Topology(epoch=self.topology_epoch, subtopologies=list(parts))
            more |= {"rebalance_timeout_ms": 60_000, "topology": topology, "process_id": self.process_id}
        if epoch >= JOINING and (epoch == JOINING or self.has != self.said):
            more |= {
                "active_tasks": rows(self.has, ACTIVE),
                "standby_tasks": rows(self.has, STANDBY),
                "warmup_tasks": [],
            }
        return StreamsGroupHeartbeatRequest(
            group_id="g", member_id=self.name, member_epoch=epoch, endpoint_information_epoch=0, **more
        )


class StreamsStage(HeartbeatStage):
    """One group, the threads of its application, its coordinator, the topics that this one knows, and its journal."""

    rendering = rendering
    administration = streams_administration

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver(replays=False)
        self.parts: Sequence[Subtopology] = [subtopology("0", "orders")]
        self.threads: dict[str, Thread] = {}
        self.missing: tuple[tuple[TopicInfo, int], ...] = ()

    # --- what is prepared ----------------------------------------------------------------------------------------

    @phrase("setting NAME VALUE")
    def setting(self, name: str, value: str) -> None:
        """A field of `StreamsSettings`."""
        if name not in StreamsSettings.__dataclass_fields__:
            raise NotUnderstood(f"{name} is none of {list(StreamsSettings.__dataclass_fields__)}")
        self.driver.settings = dataclasses.replace(self.driver.settings, **{name: int(value)})

    @phrase("topic TOPIC has COUNT partitions")
    def makes(self, topic: str, count: str) -> None:
        """The topic is made, or has another width."""
        self.driver.topics.make(topic, int(count))

    @phrase("the missing topics are made")
    def makes_missing(self) -> None:
        """What the last answer found missing."""
        for topic, count in self.missing:
            self.lines.append(f"topic {topic.name} has {count} partitions")
            self.driver.topics.make(topic.name, count)

    @phrase("the application counts by way of a topic")
    def counts(self) -> None:
        """Two subtopologies: the first writes what it reads to `words`, the second counts it in a store."""
        self.parts = [
            subtopology("0", "orders", sinks=["words"]),
            subtopology("1", reads={"words": 0}, keeps=["counts"]),
        ]

    @phrase("the application keeps a store")
    def keeps(self) -> None:
        """One subtopology, with a changelog."""
        self.parts = [subtopology("0", "orders", keeps=["counts"])]

    @phrase("MEMBER is a thread of PROCESS")
    def thread_of(self, thread: str, process: str) -> None:
        """Threads of one instance share a disk."""
        self.member(thread).process_id = process

    @phrase("MEMBER has the topology of epoch EPOCH")
    def newer(self, thread: str, epoch: str) -> None:
        """Which version of the application it says that it is."""
        self.member(thread).topology_epoch = int(epoch)

    # --- what threads do -----------------------------------------------------------------------------------------

    @phrase("MEMBER joins")
    def joins(self, thread: str) -> None:
        """A heartbeat with epoch 0; what it had is given up."""
        one = self.member(thread)
        one.forget()
        self._beat(one)

    @phrase("MEMBER leaves")
    def leaves(self, thread: str) -> None:
        """A heartbeat with epoch -1."""
        one = self.member(thread)
        self.send(one, one.request(LEAVING, self.parts))
        one.forget()

    @phrase("MEMBER fails, and asks all to end")
    def fails(self, thread: str) -> None:
        """Its exception handler has said so."""
        self._beat(self.member(thread), shutdown_application=True)

    @phrase("MEMBER commits partition INDEX of TOPIC")
    def commits(self, thread: str, index: str, topic: str) -> None:
        """OffsetCommit, with the epoch that the thread believes in."""
        one = self.member(thread)
        event = Commit(member_id=thread, instance_id=None, generation=one.epoch, partitions=[(topic, int(index))])
        self.show_commit(thread, event)

    # --- what goes wrong -----------------------------------------------------------------------------------------

    @phrase("the coordinator dies and another one takes over")
    def fails_over(self) -> None:
        """The next one knows what the journal has; timers begin anew."""
        self.driver.fail_over()
        self.lines.append(f"loaded {rendering.state(self.driver.group)}")

    @phrase("MS ms pass")
    def passes(self, ms: str) -> None:
        """Time passes; the coordinator looks at the group at every deadline on the way."""
        driver = self.driver
        begun_ms, end_ms = driver.now_ms, driver.now_ms + int(ms)
        while (due_ms := driver.group.next_deadline()) is not None and due_ms <= end_ms:
            driver.now_ms = max(due_ms, driver.now_ms)
            decision, over = streams_heartbeat.fence(
                driver.group, topics=driver.topics, settings=driver.settings, now_ms=driver.now_ms
            )
            self.lines += [f"after {driver.now_ms - begun_ms} ms {one.member_id}: {why.value}" for one, why in over]
            self._take(decision)
        driver.now_ms = end_ms

    # --- what can be asked ---------------------------------------------------------------------------------------

    @phrase("threads")
    def asked_threads(self) -> None:
        """What each thread runs and copies now; a task that two of them run is said to be."""
        runners: dict[tuple[str, int], str] = {}
        for one in self.threads.values():
            self.lines.append(f"{one.name} runs {rendering.tasks(one.has)}")
            for role, name, index in each(one.has):
                other = runners.setdefault((name, index), one.name) if role is ACTIVE else one.name
                if other != one.name:
                    self.lines.append(f"BOTH {other} and {one.name} run {name}_{index}")

    # --- the machine and what is around it -----------------------------------------------------------------------

    def the_group(self) -> StreamsGroup:
        return self.driver.group

    def decide(self, one: Thread, request: StreamsGroupHeartbeatRequest) -> StreamsDecision:
        return self.driver.decided(request)

    def resolve(self, decision: StreamsDecision) -> None:
        self.missing = decision.missing

    def member(self, name: str) -> Thread:
        """A thread, which exists from when it is first named; of an instance of its own unless that is said."""
        return self.threads.setdefault(name, Thread(name, f"{name}s-instance"))

    def _beat(self, one: Thread, **more: Any) -> None:
        has = one.has
        told = self.send(one, one.request(one.epoch, self.parts, **more))
        if told is None:
            one.said = None
            return
        one.said, one.epoch = has, told.epoch
        if told.assigned is not None:
            one.told = told.assigned
            if within(one.has, one.told):
                one.has = one.told

    def _take(self, decision: StreamsDecision) -> None:
        self.lines += [f"write {rendering.record(record)}" for record in decision.records]
        self.driver.take(decision)
