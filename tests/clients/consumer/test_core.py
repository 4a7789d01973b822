"""Events during a step are never lost, and a round of steps always ends.

Method: the core alone. `Member` carries steps out at once, as coordinators and leaders would answer, and lets a test,
or chance, act in the middle of any of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from anabranch.clients.consumer.assignors import make_assignors
from anabranch.clients.consumer.classic_group_membership import Assigned, ClassicMembership, HeartbeatOutcome
from anabranch.clients.consumer.core import ConsumerCore
from anabranch.clients.consumer.progress import UNKNOWN, PartitionProgress
from anabranch.clients.consumer.steps import (
    AdoptAssignment,
    AskMembership,
    Commit,
    DeliverRecords,
    FindResetPositions,
    FindStartingPositions,
    Flush,
    Join,
    JoinInBackground,
    LearnCommits,
    NotifyAssigned,
    NotifyGone,
    NotifyLost,
    NotifyRevoked,
    Reason,
    Step,
    Wait,
)
from anabranch.clients.metadata import ClusterMetadata, Partition, Topic
from anabranch.protocol.apis.join_group import JoinGroupResponse
from anabranch.protocol.apis.sync_group import SyncGroupResponse
from anabranch.protocol.consumer_protocol import ConsumerProtocolAssignment, encode_assignment
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.lineage import KeyEpoch, Lineage
from anabranch.protocol.records.batch import set_offset_and_epoch
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
STRATEGIES = ("range", "cooperative-sticky")


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

    def first(self) -> PartitionProgress:
        return self.core.assignment[FIRST]

    def read_to_the_cut(self) -> None:
        """Everything of the first partition up to the cut is handed out; where that is becomes known."""
        assert isinstance(self.ask(), DeliverRecords)
        self.read()
        gate = self.core.gates.gate(TOPIC)
        assert gate is not None
        gate.note_end(KeyEpoch(0, 0), CUT, leader_epoch=1)

    def read(self) -> None:
        at = self.first().position
        self.first().receive(batch(at, [b"v"] * (CUT - at)), at)
        taken = self.core.deliveries.take(100, self.now_s)
        assert [record.offset for record in taken[FIRST]] == list(range(at, CUT))

    def kinds(self) -> list[type]:
        return [type(step) for step in self.taken]


@pytest.mark.parametrize("automatic", [True, False])
def test_seek_back_during_flush_flushes_again(automatic: bool) -> None:
    member = Member(automatic=automatic)
    member.read_to_the_cut()
    member.once(Flush, lambda: member.core.seek(FIRST, 5))
    member.ask()
    assert not member.first().flushed
    assert not member.first().crossed
    assert member.first().position == 5
    member.read()
    member.committed[FIRST] = CUT  # without automatic commits: by the application, as part of a transaction
    member.ask()
    assert member.kinds()[0] is Flush
    assert member.first().crossed == {KeyEpoch(0, 0)}


def test_seek_back_during_commit_commits_nothing_of_later_reads() -> None:
    member = Member()
    member.read_to_the_cut()
    member.once(Commit, lambda: member.core.seek(FIRST, 5))
    member.ask()
    assert member.committed[FIRST] == CUT
    assert not member.first().crossed
    member.read()
    assert not member.first().processed
    member.ask()
    assert member.kinds() == [Flush, Commit]
    assert member.first().crossed == {KeyEpoch(0, 0)}


def test_boundary_is_flushed_committed_and_crossed_in_one_round() -> None:
    member = Member()
    member.read_to_the_cut()
    member.ask()
    assert member.kinds() == [Flush, Commit]
    commit = member.taken[1]
    assert isinstance(commit, Commit)
    assert (commit.reason, commit.offsets) == (Reason.BOUNDARY, {FIRST: CUT})
    assert member.first().crossed == {KeyEpoch(0, 0)}


def test_boundary_behind_a_compaction_gap_is_committed_at_its_end() -> None:
    """Records before the cut were compacted away: the child still waits for the cut."""
    member = Member()
    assert isinstance(member.ask(), DeliverRecords)
    member.first().receive(batch(0, [b"v"] * (CUT - 2)), 0)
    member.core.deliveries.take(100, member.now_s)
    behind = bytearray(batch(CUT, [b"w"]))
    set_offset_and_epoch(behind, 0, CUT, 1)
    member.first().receive(bytes(behind), CUT - 2)
    gate = member.core.gates.gate(TOPIC)
    assert gate is not None
    gate.note_end(KeyEpoch(0, 0), CUT, leader_epoch=1)
    member.ask()
    assert member.kinds() == [Flush, Commit]
    assert member.committed[FIRST] == CUT
    assert gate.is_open(KeyEpoch(1, 1))
    assert member.core.assignment.positions() == {}


def test_boundary_flushed_by_another_call_is_neither_flushed_nor_crossed_meanwhile() -> None:
    member = Member()
    member.read_to_the_cut()
    flush = member.core.flush_before({FIRST: CUT})
    assert flush is not None
    member.core.flushing(flush)
    assert member.core.flush_before({FIRST: CUT}) is None, "its callback may commit"
    member.ask()
    assert member.kinds() == []
    member.core.flush_ended(flush)
    member.core.on_step_done(flush)
    member.ask()
    assert member.kinds() == [Commit]


def test_auto_commit_excludes_possible_end_of_key_epoch() -> None:
    """It could open other gates before the application has flushed."""
    member = Member()
    assert isinstance(member.ask(), DeliverRecords)
    member.read()
    member.now_s += COMMIT_INTERVAL_S
    member.ask()
    assert member.kinds() == []
    assert member.committed[FIRST] == 0
    assert member.core.gates.requested_ends == {(TOPIC, KeyEpoch(0, 0))}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_start_offset_is_not_committed_when_others_have_read_on(strategy: str) -> None:
    """A start offset counts only for the assignment that it was looked up for. The lookup takes so long that another
    member reads and commits; a late commit of the start would undo that.
    """
    member = Member(strategy)

    def go_on_without_it() -> None:
        member.thrown_out()
        member.committed.update({FIRST: CUT, SECOND: 7})

    member.once(FindStartingPositions, go_on_without_it)
    for _ in range(3):
        member.ask()
        assert member.committed == {FIRST: CUT, SECOND: 7}, member.taken
    assert [one.position for one in member.core.assignment] == [CUT, 7]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_lease_that_ends_during_flush_delivers_nothing(strategy: str) -> None:
    """A frozen member: the lease must be checked again after the flush."""
    member = Member(strategy)
    member.read_to_the_cut()
    first = member.first()
    first.receive(batch(CUT, [b"late"], epoch=1), CUT)

    def sleep() -> None:
        member.now_s += SESSION_TIMEOUT_S

    member.once(Flush, sleep)
    assert isinstance(member.ask(), AskMembership)
    assert member.kinds() == [Flush]
    assert member.committed[FIRST] == 0
    member.thrown_out()
    member.ask()
    assert member.kinds()[0] is NotifyLost
    assert member.committed[FIRST] == 0
    assert member.first() is not first


def test_member_delivers_nothing_when_rebalancing_group_may_proceed_without_it() -> None:
    member = Member("cooperative-sticky")
    assert isinstance(member.ask(), DeliverRecords)
    member.group_waits = True
    member.core.ownership.want_rebalance()
    assert isinstance(member.ask(), DeliverRecords)
    assert member.kinds() == [JoinInBackground]
    member.now_s += REBALANCE_TIMEOUT_S
    member.membership.lease.renew(member.now_s, rebalancing=True)
    assert isinstance(member.ask(), Wait)
    member.group_waits = False
    member.core.ownership.complete_join(member.join())
    assert isinstance(member.ask(), DeliverRecords)


def test_member_removed_during_revocation_adopts_no_void_assignment() -> None:
    member = Member("cooperative-sticky")
    assert isinstance(member.ask(), DeliverRecords)
    member.gets = [FIRST]
    member.core.ownership.want_rebalance()
    member.once(NotifyRevoked, member.thrown_out)
    member.ask()
    assert member.kinds()[:4] == [JoinInBackground, NotifyRevoked, NotifyLost, JoinInBackground]
    revoked, lost = member.taken[1:3]
    assert isinstance(revoked, NotifyRevoked)
    assert isinstance(lost, NotifyLost)
    assert (revoked.partitions, lost.partitions) == ({SECOND}, {FIRST})
    assert {one.partition for one in member.core.assignment} == {FIRST}


def test_requested_rebalance_survives_failing_callback() -> None:
    member = Member()
    assert isinstance(member.ask(), DeliverRecords)
    member.core.ownership.want_rebalance()

    def fail() -> None:
        raise LookupError

    member.once(NotifyRevoked, fail)
    with pytest.raises(LookupError):
        member.ask()
    assert isinstance(member.ask(), DeliverRecords)
    assert member.kinds()[:3] == [NotifyRevoked, Join, AdoptAssignment]
    assert member.core.ownership.rebalances == 2


def test_partitions_of_recreated_topic_are_reported_as_gone() -> None:
    member = Member("cooperative-sticky")
    assert isinstance(member.ask(), DeliverRecords)
    member.core.learn(metadata(2, topic_id=b"2" * 16))
    member.ask()
    assert member.kinds()[:4] == [NotifyGone, JoinInBackground, AdoptAssignment, NotifyAssigned]


class Chance:
    """Does what comes to a random number's mind in the middle of a step."""

    def __init__(self, member: Member, rng: random.Random) -> None:
        self._member = member
        self._rng = rng
        self._counts = [1, 2]
        self.left = 0
        """How often something may still happen."""

    def __call__(self, step: Step) -> None:
        if self.left and self._rng.random() < 0.4:
            self.left -= 1
            self._rng.choice([self.seek, self.forget, self.resize, self.sleep, self.want, self.hear, self.end])()

    def seek(self) -> None:
        for progress in self._member.core.assignment:
            self._member.core.seek(progress.partition, self._rng.randrange(15))

    def forget(self) -> None:
        self._member.thrown_out()

    def resize(self) -> None:
        if len(self._counts) < 6:
            self._counts.append(self._rng.randint(1, 3))
            known = metadata(*self._counts)
            self._member.core.learn(known)
            self._member.gets = [TopicPartition(TOPIC, index) for index in known.topics[TOPIC].partitions]

    def sleep(self) -> None:
        self._member.now_s += self._rng.choice([0.1, 5.0, SESSION_TIMEOUT_S])

    def want(self) -> None:
        self._member.core.ownership.want_rebalance()

    def hear(self) -> None:
        self._member.membership.lease.renew(self._member.now_s)
        self._member.membership.on_heartbeat(self._rng.choice([ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS]))

    def end(self) -> None:
        gate = self._member.core.gates.gate(TOPIC)
        assert gate is not None
        for index in range(3):
            for key_epoch in gate.boundaries(index):
                gate.note_end(key_epoch, self._rng.randrange(12), leader_epoch=99)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("automatic", [True, False])
def test_every_round_ends_and_delivers_owned_records(strategy: str, automatic: bool) -> None:
    handed_out = 0
    for seed in range(150):
        rng = random.Random(seed)
        member = Member(strategy, automatic=automatic)
        chance = Chance(member, rng)
        for _ in range(12):
            member.meanwhile, chance.left = chance, 4
            last = member.ask()
            member.meanwhile = lambda step: None
            if isinstance(last, DeliverRecords):
                assert member.membership.may_commit(member.now_s)
                for progress in member.core.assignment:
                    if progress.fetch_offset != UNKNOWN and rng.random() < 0.5:
                        records = batch(progress.fetch_offset, [b"v"] * 3)
                        progress.receive(records, progress.fetch_offset)
                handed_out += sum(map(len, member.core.deliveries.take(5, member.now_s).values()))
            elif isinstance(last, AskMembership):
                chance.hear()
    assert handed_out > 500


@pytest.mark.parametrize("automatic", [True, False])
def test_deleted_records_behind_closed_gate_are_skipped_and_new_start_committed(automatic: bool) -> None:
    """Another member's gate may wait for the group to pass the log start, which leaders then report as the end."""
    member = behind_a_closed_gate(automatic=automatic)
    member.first().note_log_start(CUT + 2)
    assert isinstance(member.ask(), DeliverRecords)
    assert member.first().position == CUT + 2
    assert member.committed[FIRST] == CUT + 2
    assert not member.core.deliveries.take(100, member.now_s), "the gate is as closed as before"


def test_start_behind_deleted_records_waits_for_commit_of_delivered_records() -> None:
    member = behind_a_closed_gate(automatic=False)
    member.first().handed_out, member.first().committed = CUT, CUT - 1
    member.committed[FIRST] = CUT - 1
    member.first().note_log_start(CUT + 2)
    member.ask()
    assert member.committed[FIRST] == CUT - 1
    member.committed[FIRST] = CUT  # by the application, as part of a transaction
    member.ask()
    assert member.committed[FIRST] == CUT + 2


def test_start_is_committed_again_after_coordinator_timeout() -> None:
    member = behind_a_closed_gate()
    member.first().note_log_start(CUT + 2)
    member.core.begin_round()
    step = member.core.next_step(member.now_s, member.now_s)
    assert isinstance(step, Commit) and step.reason is Reason.START
    member.core.postpone(step)
    assert isinstance(member.core.next_step(member.now_s, member.now_s), DeliverRecords), "not twice in one round"
    member.ask()
    assert member.committed[FIRST] == CUT + 2


def test_deleted_records_of_open_key_epoch_are_delivered_if_fetched() -> None:
    member = Member()
    assert isinstance(member.ask(), DeliverRecords)
    member.first().receive(batch(0, [b"v"] * 3), 0)
    member.first().note_log_start(2)
    assert isinstance(member.ask(), DeliverRecords)
    assert [record.offset for record in member.core.deliveries.take(100, member.now_s)[FIRST]] == [0, 1, 2]


@pytest.mark.parametrize("log_start", [CUT + 4, CUT + 9])
def test_position_below_log_start_is_reset(log_start: int) -> None:
    """Fetched and following records are deleted: the reset policy decides."""
    member = behind_a_closed_gate()
    member.first().note_log_start(log_start)
    member.ask()
    if log_start == member.first().fetch_offset:
        assert member.committed[FIRST] == log_start
        return
    assert (member.first().position, list(member.first().buffered)) == (CUT, [])
    member.resets_at = log_start
    member.first().note_out_of_range(member.first().fetch_offset)
    member.ask()
    assert (member.first().position, member.committed[FIRST]) == (log_start, log_start)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("automatic", [True, False])
def test_reset_behind_a_cut_flushes_what_was_delivered_before(automatic: bool, known: bool) -> None:
    """The rest of the key epoch is deleted. Its keys have moved, and the commit of the new start opens gates."""
    member = Member(automatic=automatic)
    assert isinstance(member.ask(), DeliverRecords)
    member.first().receive(batch(0, [b"v"] * 3), 0)
    assert len(member.core.deliveries.take(100, member.now_s)[FIRST]) == 3
    member.committed[FIRST] = 3  # without automatic commits: by the application
    gate = member.core.gates.gate(TOPIC)
    assert gate is not None
    if known:
        gate.note_end(KeyEpoch(0, 0), CUT, leader_epoch=1)
    member.resets_at = CUT
    member.first().note_out_of_range(3)
    member.ask()
    kinds = member.kinds()
    behind = kinds[kinds.index(FindResetPositions) :]
    assert Flush in behind and Commit in behind
    assert behind.index(Flush) < behind.index(Commit)
    assert (member.first().position, member.committed[FIRST]) == (CUT, CUT)
    gate.note_end(KeyEpoch(0, 0), CUT, leader_epoch=1)
    member.ask()
    assert member.first().crossed == {KeyEpoch(0, 0)}


def test_reset_behind_several_unknown_cuts_flushes_if_keys_moved_at_any_of_them() -> None:
    """The first key epoch only took keys; they left at the end of the second one."""
    member = Member()
    member.gets = [FIRST]
    member.core.learn(metadata(2, 1, 2))
    assert isinstance(member.ask(), DeliverRecords)
    member.first().receive(batch(0, [b"v"] * 3), 0)
    assert len(member.core.deliveries.take(100, member.now_s)[FIRST]) == 3
    member.resets_at = CUT
    member.first().note_out_of_range(3)
    member.ask()
    assert member.kinds() == [FindResetPositions, Flush, Commit]


def test_seek_behind_a_cut_flushes_what_was_delivered_before() -> None:
    member = Member(automatic=False)
    member.read_to_the_cut()
    member.core.seek(FIRST, CUT + 5)
    member.committed[FIRST] = CUT + 5  # by the application
    member.core.learned_commits(member.committed)
    member.ask()
    assert member.kinds()[0] is Flush
    assert member.first().crossed == {KeyEpoch(0, 0)}


@pytest.mark.parametrize("begins_at", [0, CUT])
def test_seek_back_behind_a_crossed_cut_delivers_again(begins_at: int) -> None:
    """A transaction was aborted, and nobody commits the offset before its first record, that of a control batch."""
    member = Member(automatic=False)
    member.gets = [FIRST]
    member.core.learn(metadata(2, 1))  # the first partition only takes keys at the cut, so nothing is flushed there
    member.committed[FIRST] = begins_at
    assert isinstance(member.ask(), DeliverRecords)
    if begins_at < CUT:
        member.read()
        member.committed[FIRST] = CUT  # by the application
    gate = member.core.gates.gate(TOPIC)
    assert gate is not None
    for index in (0, 1):
        gate.note_end(KeyEpoch(index, 0), CUT, leader_epoch=1)
    member.core.gates.note_committed({FIRST: CUT, SECOND: CUT})
    for _ in range(2):
        assert isinstance(member.ask(), DeliverRecords)
        at = member.first().position
        member.first().receive(batch(at, [b"v"] * (CUT + 4 - at), epoch=1), at)
        member.ask()
        assert CUT + 3 in [one.offset for one in member.core.deliveries.take(100, member.now_s)[FIRST]]
        member.core.seek(FIRST, CUT + 1)


def behind_a_closed_gate(*, automatic: bool = True) -> Member:
    """A member whose first partition took its keys back from the second, which the group has not read."""
    member = Member(automatic=automatic)
    member.core.learn(metadata(1, 2, 1, retiring=1))
    member.gets = [FIRST]
    assert isinstance(member.ask(), DeliverRecords)
    gate = member.core.gates.gate(TOPIC)
    assert gate is not None
    for generation in (0, 1):
        gate.note_end(KeyEpoch(0, generation), CUT, leader_epoch=2)
    member.read()
    member.committed[FIRST] = CUT
    member.ask()
    member.ask()
    assert member.first().crossed == {KeyEpoch(0, 0), KeyEpoch(0, 1)}
    gate.note_end(KeyEpoch(1, 1), 5, leader_epoch=2)
    member.first().receive(batch(CUT, [b"w"] * 4, epoch=2), CUT)
    assert not member.core.deliveries.take(100, member.now_s)
    return member
