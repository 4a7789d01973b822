"""Admission, fencing, epoch bumps and leaving: the tables of KIP-848, row by row."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable

import pytest

from anabranch.broker.coordinators.consumer_groups import departure
from anabranch.broker.coordinators.consumer_groups.consumer_group import ConsumerGroupState
from anabranch.broker.coordinators.consumer_groups.heartbeat import check_request
from anabranch.broker.coordinators.consumer_groups.limits import ConsumerGroupLimits
from anabranch.broker.coordinators.consumer_groups.member import UNRELEASED, UNREVOKED
from anabranch.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from anabranch.protocol.errors import ErrorCode
from tests.broker.coordinators.consumer_groups.world import (
    GroupDriver,
    client,
    driver,
    joined,
    partitions,
    refusal,
    settle,
    topic_id,
)

# --- what is valid -----------------------------------------------------------------------------------------------


def request(**changes: object) -> ConsumerGroupHeartbeatRequest:
    made = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    for name, content in changes.items():
        setattr(made, name, content)
    return made


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, None),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": [TopicPartitions(topic_id=topic_id("t"), partitions=[0])]}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None, "subscribed_topic_regex": "t.*"}, None),
        ({"subscribed_topic_names": []}, None),
        ({"server_assignor": "range"}, None),
        ({"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2, "instance_id": "i"}, None),
        ({"member_epoch": 7, "topic_partitions": None, "rebalance_timeout_ms": -1}, None),
    ],
)
def test_malformed_heartbeat_is_refused(changes: dict[str, object], code: ErrorCode | None) -> None:
    if code is None:
        check_request(request(**changes), 1, ("uniform", "range"))
    else:
        assert refusal(lambda: check_request(request(**changes), 1, ("uniform", "range"))) is code


def test_member_id_is_generated_by_the_broker_in_version_0_only() -> None:
    check_request(request(member_id=""), 0, ("uniform",))
    for version, epoch in ((0, 1), (0, -1), (1, 0)):
        asked = request(member_id="", member_epoch=epoch)
        assert refusal(lambda asked=asked, version=version: check_request(asked, version, ("uniform",))) is (  # type: ignore[misc]
            ErrorCode.INVALID_REQUEST
        )


# --- joining, and moving partitions --------------------------------------------------------------------------------


def test_first_member_is_assigned_all_partitions() -> None:
    drive = driver()
    answer = client(drive, "a").join()
    assert (answer.epoch, answer.assignment) == (1, partitions(t=range(6)))
    assert (drive.group.epoch, drive.group.assignment_epoch) == (1, 1)
    assert drive.group.state is ConsumerGroupState.STABLE


def test_second_member_is_assigned_partitions_after_the_first_has_revoked_them() -> None:
    drive = driver()
    a, b = client(drive, "a"), client(drive, "b")
    a.join()
    assert (b.join().assignment, b.epoch) == ({}, 2)
    assert drive.group.state is ConsumerGroupState.RECONCILING
    assert drive.group.members["b"].state is UNRELEASED
    assert (a.beat().epoch, a.owned) == (1, partitions(t=[0, 1, 2]))  # told to give up; its epoch stands still
    assert drive.group.members["a"].state is UNREVOKED
    assert b.beat().assignment is None
    assert a.beat().epoch == 2
    assert b.beat().assignment == partitions(t=[3, 4, 5])
    assert settle(a, b) == 0 or drive.group.state is ConsumerGroupState.STABLE


def test_assignment_is_sent_when_it_changed_or_on_a_full_heartbeat() -> None:
    drive = driver()
    (a,) = joined(drive, "a")
    assert a.beat().assignment is None
    assert a.beat(full=True).assignment == partitions(t=range(6))


def test_join_of_a_full_group_is_refused() -> None:
    drive = driver(size_max=1)
    a, b = client(drive, "a"), client(drive, "b")
    a.join()
    assert refusal(b.join) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert a.beat().epoch == 1


def test_heartbeat_with_wrong_epoch_is_fenced() -> None:
    drive = driver()
    a, b = client(drive, "a"), client(drive, "b")
    a.join()
    assert refusal(lambda: drive.send(b.request(epoch=1))) is ErrorCode.UNKNOWN_MEMBER_ID
    b.join()
    settle(a, b)
    assert a.epoch == 2
    assert refusal(lambda: drive.send(a.request(epoch=3))) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refusal(lambda: drive.send(a.request(epoch=1))) is ErrorCode.FENCED_MEMBER_EPOCH  # says nothing of its own
    assert refusal(dataclasses.replace(a).join) is ErrorCode.FENCED_MEMBER_EPOCH  # as Kafka 4.1 has it
    lost = dataclasses.replace(a, epoch=1, said=None)
    assert lost.beat().epoch == 2  # the answer to its last heartbeat was lost
    too_much = dataclasses.replace(a, epoch=1, said=None, owned=partitions(t=range(6)))
    assert refusal(too_much.beat) is ErrorCode.FENCED_MEMBER_EPOCH


def test_repeated_join_keeps_the_epoch() -> None:
    drive = driver()
    (a,) = joined(drive, "a")
    assert (a.join().epoch, drive.group.epoch) == (1, 1)


@pytest.mark.parametrize(("change", "bumps"), [({"topics": ["t", "u"]}, True), ({"assignor": "range"}, False)])
def test_changed_subscription_of_a_member_bumps_the_group_epoch(change: dict[str, object], bumps: bool) -> None:
    drive = driver()
    drive.topics.make("u", 1)
    (a,) = joined(drive, "a")
    dataclasses.replace(a, **change).beat(full=True)  # type: ignore[arg-type]
    assert drive.group.epoch == (2 if bumps else 1)
    assert drive.replayed().members == drive.group.members


def test_assignor_with_most_votes_is_selected() -> None:
    drive = driver()
    drive.topics.make("u", 6)
    both = [client(drive, name, topics=["t", "u"], assignor="range") for name in "ab"]
    for one in both:
        one.join()
    settle(*both)
    assert both[0].owned == partitions(t=[0, 1, 2], u=[0, 1, 2])


def test_created_grown_or_deleted_topic_bumps_the_epoch_at_the_next_heartbeat() -> None:
    drive = driver()
    (a,) = joined(drive, "a", topics=["t", "later"])
    for name, count in (("later", 2), ("t", 7)):
        drive.topics.make(name, count)
        before = drive.group.epoch
        a.beat()
        a.beat()
        assert drive.group.epoch == before + 1 and a.owned[topic_id(name)] == frozenset(range(count))
    del drive.topics.known["t"]
    drive.topics.image = object()
    settle(a)
    assert a.owned == partitions(later=[0, 1])
    drive.topics.make("other", 9)
    before = drive.group.epoch
    a.beat()
    assert drive.group.epoch == before


def test_gated_partitions_are_not_in_the_target_assignment() -> None:
    drive = driver()
    drive.topics.known["t"] = (0, 2, 5)
    a, b = joined(drive, "a", "b")
    settle(a, b)
    assert (a.owned, b.owned) == (partitions(t=[0, 2]), partitions(t=[5]))
    drive.topics.known["t"] = (0, 1, 2, 5)
    drive.topics.image = object()
    settle(a, b)
    assert (a.owned, b.owned) == (partitions(t=[0, 2]), partitions(t=[1, 5]))


# --- expressions ---------------------------------------------------------------------------------------------------


def test_an_expression_matches_nothing_until_it_is_resolved() -> None:
    drive = driver()
    a = client(drive, "a", topics=None, regex="t.*")
    assert (a.join().assignment, drive.group.epoch) == ({}, 2)  # bumped when the result came, after the answer
    assert a.beat().assignment == partitions(t=range(6))
    b = client(drive, "b", topics=None, regex="t.*")
    b.join()
    assert drive.group.epoch == 3  # known already


def test_new_topics_cause_a_delayed_resolution_of_regular_expressions() -> None:
    drive = driver()
    (a,) = joined(drive, "a", topics=None, regex="t.*")
    drive.topics.make("t2", 1)
    a.beat()
    assert topic_id("t2") not in a.owned
    drive.now_ms += 10_001
    settle(a)
    assert a.owned == partitions(t=range(6), t2=[0])


def test_new_topics_are_found_although_the_last_coordinators_clock_was_ahead() -> None:
    drive = driver()
    (a,) = joined(drive, "a", topics=None, regex="t.*")
    drive.group = drive.replayed()
    drive.now_ms -= 3_600_000
    drive.topics.make("t2", 1)
    settle(a)
    assert a.owned == partitions(t=range(6), t2=[0])


def test_regular_expression_without_subscribers_is_deleted() -> None:
    drive = driver()
    a, b = client(drive, "a", topics=None, regex="t.*"), client(drive, "b", topics=None, regex="t")
    a.join()
    drive.now_ms += 10_001
    b.join()
    assert drive.group.regexes.keys() == {"t.*", "t"}
    a.leave()
    assert drive.group.regexes.keys() == {"t"} and drive.replayed().regexes == drive.group.regexes
    dataclasses.replace(b, regex="").beat(full=True)
    assert not drive.group.regexes


@pytest.mark.parametrize(("at_once", "epochs"), [(False, 0), (True, 1)])
def test_dropped_regular_expression_bumps_the_epoch_from_kafka_4_2_on(at_once: bool, epochs: int) -> None:
    drive = driver(drops_expressions_at_once=at_once)
    (a,) = joined(drive, "a", topics=None, regex="t.*")
    assert a.beat().assignment == partitions(t=range(6))
    before = drive.group.epoch
    response = dataclasses.replace(a, topics=None, regex="").beat(full=True)
    assert drive.group.epoch == before + epochs
    assert (response.assignment == {}) is at_once


def test_invalid_regular_expression_is_refused() -> None:
    drive = driver()
    assert refusal(client(drive, "a", regex="(").join) is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert not drive.journal


# --- leaving, silence, static members -------------------------------------------------------------------------------


def test_partitions_of_leaving_member_are_reassigned() -> None:
    drive = driver()
    a, b = joined(drive, "a", "b")
    settle(a, b)
    assert b.leave().epoch == -1
    assert drive.group.state is ConsumerGroupState.ASSIGNING and drive.group.epoch == 3
    settle(a)
    assert a.owned == partitions(t=range(6))
    assert refusal(b.leave) is ErrorCode.UNKNOWN_MEMBER_ID
    a.leave()
    assert drive.group.state is ConsumerGroupState.EMPTY and not drive.group.targets


def test_member_with_expired_session_is_removed() -> None:
    drive = driver(session_timeout_ms=1000)
    a, b = joined(drive, "a", "b")
    settle(a, b)
    drive.now_ms += 900
    a.beat()
    drive.now_ms += 100
    assert drive.expire() == ["b"]
    settle(a)
    assert a.owned == partitions(t=range(6)) and drive.replayed().members == drive.group.members


def test_member_that_does_not_revoke_in_time_is_removed() -> None:
    drive = driver()
    a, b = joined(drive, "a", "b")
    a.beat()
    for _ in range(7):
        drive.now_ms += 10_000
        drive.send(dataclasses.replace(a, said=a.owned).request(epoch=1))
        b.beat()
    assert drive.expire() == ["a"]
    settle(b)
    assert b.owned == partitions(t=range(6))


def test_member_that_revokes_in_time_stays() -> None:
    drive = driver()
    a, b = joined(drive, "a", "b")
    a.beat()
    drive.now_ms += 30_000
    a.beat()
    b.beat()
    drive.now_ms += 31_000
    assert drive.expire() == []


def test_static_member_returns_with_another_member_id() -> None:
    drive = driver()
    a, b = client(drive, "a1", instance_id="a"), client(drive, "b")
    a.join()
    b.join()
    settle(a, b)
    had = a.owned
    newcomer = client(drive, "a2", instance_id="a")
    assert refusal(newcomer.join) is ErrorCode.UNRELEASED_INSTANCE_ID
    assert a.leave(-2).epoch == -2
    settle(b)
    assert b.owned == partitions(t=[3, 4, 5])  # what the absent one has stays reserved
    epoch = drive.group.epoch
    answer = newcomer.join()
    assert (answer.assignment, answer.epoch, drive.group.epoch) == (had, epoch, epoch)
    assert refusal(a.beat) is ErrorCode.FENCED_INSTANCE_ID
    assert drive.replayed().members == drive.group.members and list(drive.group.static.values()) == ["a2"]
    assert refusal(lambda: client(drive, "x", instance_id="other").leave()) is ErrorCode.UNKNOWN_MEMBER_ID


def test_static_member_returns_with_its_member_id() -> None:
    drive = driver()
    (a,) = joined(drive, "a", instance_id="i")
    a.leave(-2)
    assert (a.join().epoch, a.owned, drive.group.epoch) == (1, partitions(t=range(6)), 1)
    assert drive.replayed().members == drive.group.members


def test_static_member_returning_with_other_topics_gets_a_new_assignment() -> None:
    drive = driver()
    drive.topics.make("u", 2)
    a = client(drive, "a1", instance_id="i")
    a.join()
    a.leave(-2)
    b = client(drive, "a2", instance_id="i", topics=["u"])
    answer = b.join()
    assert (answer.assignment, drive.group.epoch) == (partitions(u=[0, 1]), 2)


def test_static_member_that_does_not_return_in_time_is_removed() -> None:
    drive = driver(session_timeout_ms=1000)
    a, b = client(drive, "a", instance_id="i"), client(drive, "b")
    a.join()
    b.join()
    settle(a, b)
    a.leave(-2)
    drive.now_ms += 999
    b.beat()
    drive.now_ms += 1
    assert drive.expire() == ["a"]


def test_new_coordinator_with_shorter_session_keeps_the_granted_session_timeout() -> None:
    """A member uses its last received timeout; a new one asks early."""
    drive = driver(session_timeout_ms=45_000)
    ours, _ = joined(drive, "ours", "stock")
    response = drive.send(dataclasses.replace(ours.request(), asks_session_timeout=True))
    assert response.session_timeout_ms == 45_000
    successor = after_failover(drive, session_timeout_ms=6_000)
    successor.now_ms += 6_000
    assert successor.expire() == ["stock"]
    successor.now_ms += 38_999
    assert successor.expire() == []
    successor.now_ms += 1
    assert successor.expire() == ["ours"]


def test_new_coordinator_keeps_the_longer_session_until_it_has_ended() -> None:
    """The response with the shorter session may be lost, and so may its coordinator."""
    drive = driver(session_timeout_ms=45_000)
    (ours,) = joined(drive, "ours")
    drive.send(dataclasses.replace(ours.request(), asks_session_timeout=True))
    drive.limits = dataclasses.replace(drive.limits, session_timeout_ms=6_000)
    drive.send(dataclasses.replace(ours.request(), asks_session_timeout=True))
    successor = after_failover(drive, session_timeout_ms=6_000)
    successor.now_ms += 44_999
    assert successor.expire() == []


def test_repeated_request_of_the_session_timeout_writes_no_record() -> None:
    drive = driver()
    (ours,) = joined(drive, "ours")
    asking = dataclasses.replace(ours.request(), asks_session_timeout=True)
    drive.send(asking)
    written = len(drive.journal)
    drive.send(asking)
    assert len(drive.journal) == written


def test_first_assignment_of_a_large_topic_makes_no_call_per_partition() -> None:
    """The coordinator decides in one callback: with 10,000 partitions, 9 ms with a call for each and 5 ms without."""
    drive = driver()
    drive.topics.make("t", 5000)
    ours = client(drive, "ours")
    assert calls_of(ours.beat) < 1000
    assert ours.owned == partitions(t=range(5000))
    assert calls_of(client(drive, "second").beat) < 1000


def calls_of(function: Callable[[], object]) -> int:
    """How many functions a function calls, those of C included."""
    calls = 0

    def count(_: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


def after_failover(drive: GroupDriver, **limits: int) -> GroupDriver:
    """The coordinator that reads the group from the journal, with limits of its own."""
    successor = GroupDriver(drive.topics, ConsumerGroupLimits(**limits), drive.replayed(), drive.now_ms, drive.journal)
    departure.restart_session_timers(successor.group, successor.limits, successor.now_ms)
    return successor
