"""A consumer's core whose steps are carried out at once, as coordinators and leaders would answer."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.clients.consumer.assignors import make_assignors
from anabranch.clients.consumer.classic_group_membership import Assigned, ClassicMembership, HeartbeatOutcome
from anabranch.clients.consumer.core import ConsumerCore
from anabranch.clients.consumer.gate import TopicGate
from anabranch.clients.consumer.progress import UNKNOWN, PartitionProgress
from anabranch.clients.consumer.steps import (
    AdoptAssignment,
    AskMembership,
    Commit,
    DeliverRecords,
    FindResetPositions,
    FindStartingPositions,
    Join,
    JoinInBackground,
    LearnCommits,
    Step,
    Wait,
)
from anabranch.clients.metadata import ClusterMetadata, Partition, Topic
from anabranch.protocol.apis.join_group import JoinGroupResponse
from anabranch.protocol.apis.sync_group import SyncGroupResponse
from anabranch.protocol.consumer_protocol import ConsumerProtocolAssignment, encode_assignment
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.lineage import KeyEpoch, Lineage
from anabranch.protocol.topic_partition import TopicPartition
from tests.clients.consumer.test_progress import batch

TOPIC = "a"
FIRST, SECOND = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
CUT = 10
"""Where the first partition was cut: the second one took keys from it."""
SESSION_TIMEOUT_S = 6.0
REBALANCE_TIMEOUT_S = 60.0
COMMIT_INTERVAL_S = 5.0
STEPS_MAX = 40


def metadata(*counts: int, topic_id: bytes = b"1" * 16, retiring: int = 0) -> ClusterMetadata:
    """A topic resized through `counts`, with `retiring` partitions to drain; leader epochs are class generations."""
    lineage = Lineage(1, list(enumerate(counts)))
    partitions = {}
    for index in range(counts[-1] + retiring):
        starts = tuple((generation, generation) for generation in lineage.class_generations(index))
        partitions[index] = Partition(index, 1, starts[-1][0], (1,), (1,), ErrorCode.NONE, starts)
    return ClusterMetadata(topics={TOPIC: Topic(TOPIC, topic_id, partitions, lineage=lineage)})


class Member:
    """A consumer whose steps are carried out at once; `meanwhile` is called in the middle of each."""

    def __init__(self, strategy: str = "range", *, automatic: bool = True) -> None:
        self.membership = ClassicMembership(
            "g",
            [TOPIC],
            session_timeout_ms=int(1000 * SESSION_TIMEOUT_S),
            rebalance_timeout_ms=int(1000 * REBALANCE_TIMEOUT_S),
            heartbeat_interval_ms=3000,
            assignors=make_assignors(strategy),
        )
        self.core = ConsumerCore(
            [TOPIC],
            self.membership,
            ordered=True,
            auto_commit_s=COMMIT_INTERVAL_S if automatic else None,
            audited=False,
            holds_back=lambda partition, generation: False,
        )
        self.now_s = 0.0
        self.generation = 0
        self.group_waits = False
        """Whether joins of a member that reads on come to no end: another member is missing."""
        self.gets = [FIRST, SECOND]
        self.committed: dict[TopicPartition, int] = {}
        self.resets_at = 0
        self.taken: list[Step] = []
        self.meanwhile: Callable[[Step], None] = lambda step: None
        self.core.learn(metadata(1, 2))
        self.core.begin(0.0)

    def once(self, kind: type, act: Callable[[], None]) -> None:
        """Do something in the middle of the next step of this kind."""

        def meanwhile(step: Step) -> None:
            if isinstance(step, kind):
                self.meanwhile = lambda step: None
                act()

        self.meanwhile = meanwhile

    def ask(self) -> DeliverRecords | Wait | AskMembership:
        """The application asks for records: the steps until they may be handed out, or nothing can be done."""
        self.core.begin_round()
        self.taken = []
        while len(self.taken) < STEPS_MAX:
            step = self.core.next_step(self.now_s, self.now_s)
            if isinstance(step, DeliverRecords | Wait | AskMembership):
                return step
            self.taken.append(step)
            self.carry_out(step)
        raise AssertionError(f"no end of steps: {self.taken[-3:]}")

    def carry_out(self, step: Step) -> None:
        begun = self.core.beginnings(step.offsets) if isinstance(step, Commit) else {}
        found = dict(self.committed)  # the coordinator answers, and then things happen
        match step:
            case JoinInBackground():
                self.core.ownership.begin_join()
                if not self.group_waits:
                    self.core.ownership.complete_join(self.join())
            case AdoptAssignment():
                self.core.ownership.take_up(step.assigned)
        self.meanwhile(step)
        match step:
            case Join():
                self.core.ownership.complete_join(self.join())
            case Commit():
                self.committed.update(step.offsets)
                self.core.on_committed(step.offsets, begun)
            case LearnCommits():
                self.core.learned_commits({one: self.committed.get(one, UNKNOWN) for one in step.partitions})
            case FindStartingPositions():
                todo = [one.partition for one in self.core.assignment if one.position == UNKNOWN]
                self.core.begin_at_commits({one: found.get(one, UNKNOWN) for one in todo})
                self.core.begin_at(dict.fromkeys(todo, 0))
                self.core.starts_looked_up(todo)
            case FindResetPositions():
                self.core.reset_at({one.partition: self.resets_at for one in self.core.assignment})
        self.core.on_step_done(step)

    def join(self) -> Assigned:
        self.generation += 1
        self.membership.join_request()
        name = self.membership.assignors[0].name
        joined = JoinGroupResponse(
            error_code=0,
            generation_id=self.generation,
            protocol_name=name,
            leader="another",
            member_id="me",
            members=[],
        )
        assert self.membership.on_join_response(joined) is HeartbeatOutcome.PROCEED
        assignment = encode_assignment(ConsumerProtocolAssignment(assigned_partitions=[], user_data=None))
        _, given = self.membership.on_sync_response(SyncGroupResponse(error_code=0, assignment=assignment))
        self.membership.lease.renew(self.now_s)
        return Assigned(tuple(self.gets), group_generation=given.group_generation)

    def thrown_out(self) -> None:
        """The coordinator removes the member, and the member learns it."""
        self.membership.on_heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)

    @property
    def first(self) -> PartitionProgress:
        return self.core.assignment[FIRST]

    @property
    def gate(self) -> TopicGate:
        gate = self.core.gates.gate(TOPIC)
        assert gate is not None
        return gate

    def read_to_the_cut(self) -> None:
        """Everything of the first partition up to the cut is handed out; where that is becomes known."""
        assert isinstance(self.ask(), DeliverRecords)
        self.read()
        self.gate.note_end(KeyEpoch(0, 0), CUT, leader_epoch=1)

    def read(self) -> None:
        at = self.first.position
        self.first.receive(batch(at, [b"v"] * (CUT - at)), at)
        assert self.take() == list(range(at, CUT))

    def take(self) -> list[int]:
        """The application is handed records: their offsets."""
        return [record.offset for taken in self.core.deliveries.take(100, self.now_s).values() for record in taken]

    def kinds(self) -> list[type]:
        return [type(step) for step in self.taken]


def behind_a_closed_gate(*, automatic: bool = True) -> Member:
    """A member whose first partition took its keys back from the second, which the group has not read."""
    member = Member(automatic=automatic)
    member.core.learn(metadata(1, 2, 1, retiring=1))
    member.gets = [FIRST]
    assert isinstance(member.ask(), DeliverRecords)
    for generation in (0, 1):
        member.gate.note_end(KeyEpoch(0, generation), CUT, leader_epoch=2)
    member.read()
    member.committed[FIRST] = CUT
    member.ask()
    member.ask()
    assert member.first.crossed == {KeyEpoch(0, 0), KeyEpoch(0, 1)}
    member.gate.note_end(KeyEpoch(1, 1), 5, leader_epoch=2)
    member.first.receive(batch(CUT, [b"w"] * 4, epoch=2), CUT)
    assert not member.take()
    return member
