"""Events during a step are never lost, and a round of steps always ends.

Method: the core alone. `Member` carries steps out at once, as coordinators and leaders would answer, and lets a test,
or chance, act in the middle of any of them.
"""

from __future__ import annotations

import random

import pytest

from anabranch.clients.consumer.progress import UNKNOWN
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
    NotifyAssigned,
    NotifyGone,
    NotifyLost,
    NotifyRevoked,
    Reason,
    Step,
    Wait,
)
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.lineage import KeyEpoch
from anabranch.protocol.topic_partition import TopicPartition
from tests.clients.consumer.core_member import (
    COMMIT_INTERVAL_S,
    CUT,
    FIRST,
    REBALANCE_TIMEOUT_S,
    SECOND,
    SESSION_TIMEOUT_S,
    TOPIC,
    Member,
    behind_a_closed_gate,
    metadata,
)
from tests.clients.consumer.test_progress import batch

STRATEGIES = ("range", "cooperative-sticky")


@pytest.mark.parametrize("automatic", [True, False])
def test_seek_back_during_flush_flushes_again(automatic: bool) -> None:
    member = Member(automatic=automatic)
    member.read_to_the_cut()
    member.once(Flush, lambda: member.core.seek(FIRST, 5))
    member.ask()
    assert not member.first.flushed
    assert not member.first.crossed
    assert member.first.position == 5
    member.read()
    member.committed[FIRST] = CUT  # without automatic commits: by the application, as part of a transaction
    member.ask()
    assert member.kinds()[0] is Flush
    assert member.first.crossed == {KeyEpoch(0, 0)}


def test_seek_back_during_commit_commits_nothing_of_later_reads() -> None:
    member = Member()
    member.read_to_the_cut()
    member.once(Commit, lambda: member.core.seek(FIRST, 5))
    member.ask()
    assert member.committed[FIRST] == CUT
    assert not member.first.crossed
    member.read()
    assert not member.first.processed
    member.ask()
    assert member.kinds() == [Flush, Commit]
    assert member.first.crossed == {KeyEpoch(0, 0)}


def test_boundary_is_flushed_committed_and_crossed_in_one_round() -> None:
    member = Member()
    member.read_to_the_cut()
    member.ask()
    assert member.kinds() == [Flush, Commit]
    commit = member.taken[1]
    assert isinstance(commit, Commit)
    assert (commit.reason, commit.offsets) == (Reason.BOUNDARY, {FIRST: CUT})
    assert member.first.crossed == {KeyEpoch(0, 0)}


def test_boundary_behind_a_compaction_gap_is_committed_at_its_end() -> None:
    """Records before the cut were compacted away: the child still waits for the cut."""
    member = Member()
    assert isinstance(member.ask(), DeliverRecords)
    member.first.receive(batch(0, [b"v"] * (CUT - 2)), 0)
    member.take()
    member.first.receive(batch(CUT, [b"w"], epoch=1), CUT - 2)
    member.gate.note_end(KeyEpoch(0, 0), CUT, leader_epoch=1)
    member.ask()
    assert member.kinds() == [Flush, Commit]
    assert member.committed[FIRST] == CUT
    assert member.gate.is_open(KeyEpoch(1, 1))
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
    first = member.first
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
    assert member.first is not first


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


def test_topic_recreated_during_background_join_is_read_from_its_start() -> None:
    """The assignment names the same partition, but its position is that of the deleted topic."""
    member = Member("cooperative-sticky")
    member.gets = [FIRST]
    assert isinstance(member.ask(), DeliverRecords)
    member.read()

    def make_again() -> None:
        member.committed.clear()
        member.core.learn(metadata(1, topic_id=b"2" * 16))

    member.core.ownership.want_rebalance()
    member.once(JoinInBackground, make_again)
    assert isinstance(member.ask(), DeliverRecords)
    assert member.kinds().count(NotifyGone) == 1
    assert member.first.position == 0


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
        for index in range(3):
            for key_epoch in self._member.gate.boundaries(index):
                self._member.gate.note_end(key_epoch, self._rng.randrange(12), leader_epoch=99)


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
    member.first.note_log_start(CUT + 2)
    assert isinstance(member.ask(), DeliverRecords)
    assert member.first.position == CUT + 2
    assert member.committed[FIRST] == CUT + 2
    assert not member.take(), "the gate is as closed as before"


def test_start_behind_deleted_records_waits_for_commit_of_delivered_records() -> None:
    member = behind_a_closed_gate(automatic=False)
    member.first.handed_out, member.first.committed = CUT, CUT - 1
    member.committed[FIRST] = CUT - 1
    member.first.note_log_start(CUT + 2)
    member.ask()
    assert member.committed[FIRST] == CUT - 1
    member.committed[FIRST] = CUT  # by the application, as part of a transaction
    member.ask()
    assert member.committed[FIRST] == CUT + 2


def test_start_is_committed_again_after_coordinator_timeout() -> None:
    member = behind_a_closed_gate()
    member.first.note_log_start(CUT + 2)
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
    member.first.receive(batch(0, [b"v"] * 3), 0)
    member.first.note_log_start(2)
    assert isinstance(member.ask(), DeliverRecords)
    assert member.take() == [0, 1, 2]


@pytest.mark.parametrize("log_start", [CUT + 4, CUT + 9])
def test_position_below_log_start_is_reset(log_start: int) -> None:
    """Fetched and following records are deleted: the reset policy decides."""
    member = behind_a_closed_gate()
    member.first.note_log_start(log_start)
    member.ask()
    if log_start == member.first.fetch_offset:
        assert member.committed[FIRST] == log_start
        return
    assert (member.first.position, list(member.first.buffered)) == (CUT, [])
    member.resets_at = log_start
    member.first.note_out_of_range(member.first.fetch_offset)
    member.ask()
    assert (member.first.position, member.committed[FIRST]) == (log_start, log_start)


def test_reset_goes_back_only_if_the_position_is_out_of_range_twice() -> None:
    """Between the fetch and the lookup the power of all nodes failed, and the next leader has lost its log start."""
    member = Member()
    assert isinstance(member.ask(), DeliverRecords)
    member.first.receive(batch(0, [b"v"] * 3), 0)
    assert member.take() == [0, 1, 2]
    member.resets_at = 0
    for _ in range(2):
        member.first.note_out_of_range(3)
        member.ask()
        assert member.first.fetchable and member.first.position == 3
        member.first.note_ends(high_watermark=3, last_stable_offset=3, committed_only=False)  # it is in range again
    member.first.note_out_of_range(3)
    member.ask()
    member.first.note_out_of_range(3)
    member.ask()
    assert member.first.position == 0


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("automatic", [True, False])
def test_reset_behind_a_cut_flushes_what_was_delivered_before(automatic: bool, known: bool) -> None:
    """The rest of the key epoch is deleted. Its keys have moved, and the commit of the new start opens gates."""
    member = Member(automatic=automatic)
    assert isinstance(member.ask(), DeliverRecords)
    member.first.receive(batch(0, [b"v"] * 3), 0)
    assert member.take() == [0, 1, 2]
    member.committed[FIRST] = 3  # without automatic commits: by the application
    if known:
        member.gate.note_end(KeyEpoch(0, 0), CUT, leader_epoch=1)
    member.resets_at = CUT
    member.first.note_out_of_range(3)
    member.ask()
    kinds = member.kinds()
    behind = kinds[kinds.index(FindResetPositions) :]
    assert Flush in behind and Commit in behind
    assert behind.index(Flush) < behind.index(Commit)
    assert (member.first.position, member.committed[FIRST]) == (CUT, CUT)
    member.gate.note_end(KeyEpoch(0, 0), CUT, leader_epoch=1)
    member.ask()
    assert member.first.crossed == {KeyEpoch(0, 0)}


def test_reset_behind_several_unknown_cuts_flushes_if_keys_moved_at_any_of_them() -> None:
    """The first key epoch only took keys; they left at the end of the second one."""
    member = Member()
    member.gets = [FIRST]
    member.core.learn(metadata(2, 1, 2))
    assert isinstance(member.ask(), DeliverRecords)
    member.first.receive(batch(0, [b"v"] * 3), 0)
    assert member.take() == [0, 1, 2]
    member.resets_at = CUT
    member.first.note_out_of_range(3)
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
    assert member.first.crossed == {KeyEpoch(0, 0)}


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
    for index in (0, 1):
        member.gate.note_end(KeyEpoch(index, 0), CUT, leader_epoch=1)
    member.core.gates.note_committed({FIRST: CUT, SECOND: CUT})
    for _ in range(2):
        assert isinstance(member.ask(), DeliverRecords)
        at = member.first.position
        member.first.receive(batch(at, [b"v"] * (CUT + 4 - at), epoch=1), at)
        member.ask()
        assert CUT + 3 in member.take()
        member.core.seek(FIRST, CUT + 1)
