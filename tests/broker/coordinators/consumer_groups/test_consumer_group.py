"""Random lives of a group, checked against invariants; planted bugs must be found.

Clients join, send heartbeats, lose answers, leave for good or for a while, fall silent; topics grow and go; another
coordinator takes over from the journal alone. A client believes that it has what it was told to have, until it is told
otherwise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from anabranch.broker.coordinators.consumer_groups import reconciliation, target_assignment
from anabranch.broker.coordinators.consumer_groups.assignment import each
from anabranch.broker.coordinators.consumer_groups.consumer_group import ConsumerGroup, ConsumerGroupState
from anabranch.broker.coordinators.consumer_groups.limits import ConsumerGroupLimits
from anabranch.broker.coordinators.consumer_groups.member import STABLE, Member
from anabranch.broker.coordinators.consumer_groups.timers import Timer
from anabranch.protocol import consumer_group_records as records
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.broker.coordinators.consumer_groups.world import Client, GroupDriver, partitions, settle, topic_id

NAMES = ("a", "b", "c", "d")
SUBSCRIPTIONS: tuple[dict[str, object], ...] = (
    {"topics": ["t"]},
    {"topics": ["t", "u"]},
    {"topics": ["u"], "assignor": "range"},
    {"topics": [], "regex": "[tv]"},
    {"topics": ["u"], "regex": "t"},
)
SESSION_MS = 45_000
HEARS_TOO_EARLY: list[str] = []
"""Planted: members are answered before what they are told is replicated."""


class Lives(RuleBasedStateMachine):
    """One group."""

    def __init__(self) -> None:
        super().__init__()
        self.drive = GroupDriver(limits=ConsumerGroupLimits(session_timeout_ms=SESSION_MS))
        self.drive.topics.make("t", 5)
        self.drive.topics.make("u", 2)
        self.clients: dict[str, Client] = {}
        """Those that believe to be members."""
        self.absent: dict[str, Client] = {}
        """Static members that left for a while."""
        self.lives = 0

    # -- clients

    @rule(name=st.sampled_from(NAMES), subscription=st.sampled_from(SUBSCRIPTIONS), static=st.booleans())
    def join(self, name: str, subscription: dict[str, object], static: bool) -> None:
        if name in self.clients or name in self.absent:
            return
        self.lives += 1
        one = Client(self.drive, f"{name}{self.lives}", instance_id=name if static else None, **subscription)  # type: ignore[arg-type]
        self._act(name, one, one.join)

    @rule(name=st.sampled_from(NAMES), full=st.booleans())
    def beat(self, name: str, full: bool) -> None:
        if name in self.clients:
            one = self.clients[name]
            self._act(name, one, lambda: one.beat(full=full))

    @rule(name=st.sampled_from(NAMES))
    def lose_an_answer(self, name: str) -> None:
        """The coordinator processes the heartbeat, and the response is lost."""
        if name in self.clients:
            one = dataclasses.replace(self.clients[name])
            self._act(name, self.clients[name], lambda: one.beat(full=True))

    @rule(name=st.sampled_from(NAMES), subscription=st.sampled_from(SUBSCRIPTIONS))
    def subscribe(self, name: str, subscription: dict[str, object]) -> None:
        if name in self.clients:
            one = dataclasses.replace(self.clients[name], **{"topics": [], "regex": "", **subscription})  # type: ignore[arg-type]
            self.clients[name] = one
            self._act(name, one, lambda: one.beat(full=True))

    @rule(name=st.sampled_from(NAMES), for_good=st.booleans())
    def leave(self, name: str, for_good: bool) -> None:
        if name in self.clients:
            one = self.clients.pop(name)
            stays = one.instance_id is not None and not for_good
            if stays:
                self.absent[name] = one
            self._act(name, one, lambda: one.leave(-2 if stays else -1), keep=False)

    @rule(name=st.sampled_from(NAMES), same_id=st.booleans())
    def come_back(self, name: str, same_id: bool) -> None:
        if name in self.absent:
            one = self.absent.pop(name)
            self.lives += 1
            again = dataclasses.replace(one, member_id=one.member_id if same_id else f"{name}{self.lives}")
            self._act(name, again, again.join)

    def _act(self, name: str, one: Client, act: Callable[[], object], *, keep: bool = True) -> None:
        """After a refusal a client has no partitions, and starts as a new member."""
        try:
            act()
        except KafkaError as error:
            assert error.code in (
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.UNRELEASED_INSTANCE_ID,
                ErrorCode.FENCED_INSTANCE_ID,
                ErrorCode.GROUP_ID_NOT_FOUND,
            ), error
            self.clients.pop(name, None)
        else:
            if keep:
                self.clients[name] = one

    # -- the rest of the world

    @rule(ms=st.sampled_from([3_000, 11_000, 30_000]))
    def pass_time(self, ms: int) -> None:
        self.drive.now_ms += ms
        self.drive.expire()

    @rule(topic=st.sampled_from("tuv"), count=st.integers(1, 7))
    def make(self, topic: str, count: int) -> None:
        if count >= len(self.drive.topics.known.get(topic, ())):
            self.drive.topics.make(topic, count)

    @precondition(lambda self: "v" in self.drive.topics.known)
    @rule()
    def delete(self) -> None:
        del self.drive.topics.known["v"]
        self.drive.topics.image = object()

    @rule()
    def fail_over(self) -> None:
        """Another coordinator knows the journal, and nothing else."""
        fresh = self.drive.replayed()
        for member in fresh.members.values():
            fresh.timers.set(member.member_id, Timer.SESSION, self.drive.now_ms + SESSION_MS)
        self.drive.group = fresh

    @rule(name=st.sampled_from(NAMES), how=st.sampled_from(["join", "beat", "leave"]))
    def die_before_it_is_replicated(self, name: str, how: str) -> None:
        """The coordinator dies with its last, unacknowledged records; the client retries later."""
        if (name in self.clients) == (how == "join") or name in self.absent:
            return
        one = dataclasses.replace(self.clients[name]) if how != "join" else Client(self.drive, f"{name}?", ["t"])
        written = len(self.drive.journal)
        try:
            getattr(one, how)()
        except KafkaError:
            return
        if HEARS_TOO_EARLY and how == "beat":
            self.clients[name] = one
        del self.drive.journal[written:]
        self.fail_over()

    # -- what must hold

    @invariant()
    def the_journal_says_all(self) -> None:
        now, then = self.drive.group, self.drive.replayed()
        for name in ("epoch", "assignment_epoch", "metadata_hash", "members", "static", "targets", "regexes"):
            assert getattr(now, name) == getattr(then, name), name
        assert (now.subscribers, now.regex_subscribers) == (then.subscribers, then.regex_subscribers)

    @invariant()
    def a_partition_has_one_owner(self) -> None:
        held: dict[tuple[bytes, int], str] = {}
        for member in self.drive.group.members.values():
            for one in (*each(member.assigned), *each(member.revoking)):
                assert one not in held, f"{member.member_id} and {held[one]} have {one}"
                held[one] = member.member_id
                assert self.drive.group.holder(*one) == member.member_id
        holders = self.drive.group._holders
        assert held.keys() == {(topic_id, index) for topic_id, indexes in holders.items() for index in indexes}
        believed: dict[tuple[bytes, int], str] = {}
        for client in self.clients.values():
            if client.member_id in self.drive.group.members:  # else it is out, and its session was over
                for one in each(client.owned):
                    assert one not in believed, f"{client.member_id} and {believed[one]} believe to have {one}"
                    believed[one] = client.member_id
                    assert held.get(one) == client.member_id, f"{client.member_id} believes to have {one}"

    @invariant()
    def epochs_are_in_their_order(self) -> None:
        group = self.drive.group
        assert group.assignment_epoch <= group.epoch
        assert all(member.epoch <= group.epoch for member in group.members.values())
        assert group.targets.keys() <= group.members.keys()

    def teardown(self) -> None:
        """Whatever happened, those that stay get everything, each partition once."""
        self.drive.now_ms += SESSION_MS
        for one in self.clients.values():
            if one.member_id in self.drive.group.members:
                self.drive.group.timers.set(one.member_id, Timer.SESSION, self.drive.now_ms + SESSION_MS)
        self.drive.expire()
        alive = [one for one in self.clients.values() if one.member_id in self.drive.group.members]
        for one in alive:
            try:
                one.beat(full=True)
            except KafkaError:  # its last answer was lost twice: only its session's end helps, as in Kafka
                return
        if not alive:
            return
        settle(*alive, rounds=20)
        self.a_partition_has_one_owner()
        group = self.drive.group
        assert group.state is ConsumerGroupState.STABLE, group.describe()
        subscribed = {
            (topic_id(name), index)
            for name in group.subscribed_topics()
            for index in self.drive.topics.known.get(name, ())
        }
        assert subscribed == {one for client in alive for one in each(client.owned)}


def run(examples: int, *, shrink: bool = True) -> None:
    phases = [Phase.explicit, Phase.reuse, Phase.generate, *([Phase.shrink] if shrink else [])]
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Lives,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            database=None,
            phases=phases,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_random_histories_keep_the_groups_invariants() -> None:
    run(60)


@contextmanager
def everything_is_free() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConsumerGroup, "free_of", lambda self, topic, partitions: partitions)
        yield


@contextmanager
def silence_is_an_acknowledgement() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reconciliation, "overlap", lambda one, other: False)
        yield


@contextmanager
def revoking_partitions_are_let_go() -> Iterator[None]:
    before = Member.current

    def current(self: Member) -> object:
        return before(dataclasses.replace(self, revoking={}, state=STABLE))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Member, "current", current)
        yield


@contextmanager
def targets_forget_a_partition() -> Iterator[None]:
    before = target_assignment.compute

    def compute(*arguments: object) -> object:
        computed = dict(before(*arguments))  # type: ignore[arg-type]
        return {
            member_id: {topic: indexes - {4} for topic, indexes in target.items() if indexes - {4}}
            for member_id, target in computed.items()
        }

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target_assignment, "compute", compute)
        yield


@contextmanager
def answers_come_before_replication() -> Iterator[None]:
    HEARS_TOO_EARLY.append("always")
    try:
        yield
    finally:
        HEARS_TOO_EARLY.clear()


@pytest.mark.parametrize(
    "bug",
    [
        answers_come_before_replication,
        everything_is_free,
        silence_is_an_acknowledgement,
        revoking_partitions_are_let_go,
        targets_forget_a_partition,
    ],
    ids=lambda bug: bug.__name__,
)
def test_random_histories_find_planted_bugs(bug: Callable[[], Iterator[None]]) -> None:
    with bug(), pytest.raises(AssertionError):  # type: ignore[attr-defined]
        run(200, shrink=False)


def test_records_of_another_kafka_version_are_replayed() -> None:
    """Records that are only deleted now, and unknown states."""
    drive = GroupDriver()
    drive.topics.make("t", 2)
    drive.group.has_partition_metadata = True
    Client(drive, "a", ["t"]).join()
    assert not drive.group.has_partition_metadata  # deleted with the first decision
    assert drive.group.members["a"].assigned == partitions(t=[0, 1])


def replayed(*assignments: tuple[str, dict[bytes, frozenset[int]]]) -> ConsumerGroup:
    """A group after records of the assignments of members."""
    group = ConsumerGroup("g")
    for member_id, assigned in assignments:
        key = records.ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id=member_id)
        group.apply((key, Member(member_id=member_id, epoch=1, assigned=assigned).current()))
    return group


def test_partitions_are_free_after_a_replay_in_which_two_members_had_one() -> None:
    """Of a log that is compacted meanwhile, a load may not read that a gave it up before b got it."""
    group = replayed(("a", partitions(t=[0], u=[0])), ("b", partitions(t=[0])), ("b", {}), ("a", {}))
    assert group.is_free(topic_id("t"), 0) and group.is_free(topic_id("u"), 0)


def test_partition_is_not_free_after_a_replay_in_which_another_member_gave_it_up() -> None:
    """Two compactions during a load: what is read of b is older than the second record of a."""
    mine = partitions(t=[0])
    group = replayed(("a", mine), ("b", mine), ("a", mine), ("b", {}))
    assert not group.is_free(topic_id("t"), 0)
