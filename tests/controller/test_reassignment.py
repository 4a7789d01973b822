"""Reassignments: visible state, completion, and interruptions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from anabranch.controller import events, resize
from anabranch.controller.model import Partition, TopicPartition
from anabranch.protocol.apis.leader_and_isr import LeaderAndIsrRequest
from anabranch.protocol.apis.stop_replica import StopReplicaRequest
from tests.controller.world import Crash, Term, World, started

T0 = TopicPartition("t", 0)


def moving_one(brokers: int = 5) -> tuple[World, Term]:
    """Partition 0 on brokers 1 and 2, on its way to 3 and 4."""
    world, term = started(brokers=brokers, partitions=1, replication=2)
    assert term.reassign({0: [3, 4]}) == {0: 0}
    return world, term


def assignment(world: World, index: int = 0) -> tuple[Any, Any, Any]:
    body = world.topics["t"].body
    return body.assignment[index], body.adding_replicas.get(index), body.removing_replicas.get(index)


def stopped(world: World, since: int = 0) -> list[tuple[int, int, bool]]:
    return [
        (broker, row.leader_epoch, row.delete_partition)
        for broker, request in world.sent[since:]
        if isinstance(request, StopReplicaRequest)
        for topic in request.topic_states
        for row in topic.partition_states
    ]


def test_reassignment_shows_old_and_new_replicas_while_it_runs() -> None:
    world, term = moving_one()
    assert assignment(world) == ((3, 4, 1, 2), (3, 4), (1, 2))
    assert term.moving() == {0: ([3, 4, 1, 2], [3, 4], [1, 2])}
    state = world.state("t", 0)
    assert (state.leader, state.leader_epoch, state.isr) == (1, 1, (1, 2)), "the leader learns of them in a new epoch"
    rows = {broker: world.held[broker, T0] for broker in (1, 2, 3, 4)}
    for row in rows.values():
        assert (row.replicas, row.adding_replicas, row.removing_replicas) == ([3, 4, 1, 2], [3, 4], [1, 2])
    assert {broker for broker, row in rows.items() if row.is_new} == {3, 4}
    assert world.images[5].topics["t"].partitions[0].replicas == (3, 4, 1, 2)
    assert stopped(world) == []


def test_reassignment_completes_when_all_target_replicas_are_in_sync() -> None:
    world, term = moving_one()
    term.join_isr(0, 3)
    assert assignment(world) == ((3, 4, 1, 2), (3, 4), (1, 2)) and term.moving()
    term.join_isr(0, 4)
    assert assignment(world) == ((3, 4), None, None) and not term.moving()
    state = world.state("t", 0)
    assert (state.leader, state.leader_epoch, set(state.isr)) == (3, 2, {3, 4})
    assert stopped(world) == [(1, 2, True), (2, 2, True)], "with the epoch that has no place for them"
    assert {broker for broker, partition in world.held if partition == T0} == {3, 4}
    assert world.held[3, T0].replicas == [3, 4]
    assert world.images[1].topics["t"].partitions[0].replicas == (3, 4)
    assert not [phases for phases in term.state.replica_phases.values() if phases.keys() & {1, 2}]


def test_requests_of_last_step_are_in_kafka_order() -> None:
    world, term = moving_one()
    term.join_isr(0, 3)
    since = len(world.sent)
    term.join_isr(0, 4)
    kinds = [type(request).__name__ for _, request in world.sent[since:]]
    told = kinds[kinds.index("LeaderAndIsrRequest") :]
    assert told == ["LeaderAndIsrRequest"] * 2 + ["UpdateMetadataRequest"] * 5 + ["StopReplicaRequest"] * 2


def test_leader_among_targets_keeps_leading() -> None:
    world, term = started(brokers=4, partitions=1, replication=3)
    term.reassign({0: [4, 1, 2]})
    term.join_isr(0, 4)
    state = world.state("t", 0)
    assert (state.leader, set(state.isr), state.leader_epoch) == (1, {1, 2, 4}, 2)


def test_removed_replicas_and_new_order_complete_at_once() -> None:
    world, term = started(partitions=1, replication=3)
    term.reassign({0: [3, 1]})
    assert assignment(world) == ((3, 1), None, None)
    assert (world.state("t", 0).leader, world.state("t", 0).isr) == (1, (1, 3))
    assert [broker for broker, _, _ in stopped(world)] == [2]
    term.reassign({0: [1, 3]})
    assert assignment(world) == ((1, 3), None, None)
    since = len(world.sent)
    assert term.reassign({0: [1, 3]}) == {0: 0} and len(world.sent) == since, "it is there already"


def test_cancelled_reassignment_restores_replicas() -> None:
    world, term = moving_one()
    term.join_isr(0, 3)
    assert term.reassign({0: None}) == {0: 0}
    assert assignment(world) == ((1, 2), None, None)
    state = world.state("t", 0)
    assert (state.leader, set(state.isr)) == (1, {1, 2})
    assert [broker for broker, _, _ in stopped(world)] == [3, 4]
    assert term.reassign({0: None}) == {0: 85}  # NO_REASSIGNMENT_IN_PROGRESS


def test_new_target_replaces_running_reassignment() -> None:
    world, term = moving_one()
    term.join_isr(0, 4)
    assert term.reassign({0: [5, 3]}) == {0: 0}
    assert assignment(world) == ((5, 3, 1, 2), (5, 3), (1, 2))
    assert set(world.state("t", 0).isr) == {1, 2}
    assert [broker for broker, _, _ in stopped(world)] == [4], "what nobody wants any more stops at once"
    assert [broker for (broker, _), row in world.held.items() if row.is_new] == [5], "3 is on its way already"
    term.join_isr(0, 3, 5)
    assert assignment(world) == ((5, 3), None, None)


def test_cancelled_replica_with_only_copy_is_kept_until_others_catch_up() -> None:
    """1 and 2 fall out of sync and die: only 3 has committed records, so a cancellation must not delete them."""
    world, term = moving_one()
    term.join_isr(0, 3)
    for dead in (1, 2):
        world.brokers.pop(dead)
    term.brokers_changed()
    assert (world.state("t", 0).leader, world.state("t", 0).isr) == (3, (3,))
    assert term.reassign({0: None}) == {0: 0}
    assert assignment(world) == ((1, 2, 3), None, (3,))
    assert world.state("t", 0).isr == (3,) and (3, T0) in world.held
    world.add_brokers(1, 2)
    term.brokers_changed()
    term.join_isr(0, 1, 2)
    assert assignment(world) == ((1, 2), None, None) and world.state("t", 0).leader == 1


def test_leader_dies_during_reassignment() -> None:
    world, term = moving_one()
    term.join_isr(0, 3)
    world.brokers.pop(1)
    term.brokers_changed()
    assert world.state("t", 0).leader == 3
    term.join_isr(0, 4)
    assert assignment(world) == ((3, 4), None, None), "a dead replica that leaves is not waited for"
    world.add_brokers(1)
    term.brokers_changed()
    assert [row for broker, row in world.sent if broker == 1 and isinstance(row, LeaderAndIsrRequest)][-1:] != [], (
        "1 led"
    )
    assert (1, T0) in world.held and world.held[1, T0].leader == 1, "nobody told it anything new"


def test_dead_added_replica_is_awaited() -> None:
    world, term = moving_one()
    world.brokers.pop(4)
    term.brokers_changed()
    term.join_isr(0, 3)
    assert term.moving()
    world.add_brokers(4)
    term.brokers_changed()
    assert term.moving()
    term.join_isr(0, 4)
    assert not term.moving()


def test_reassignment_waits_for_a_live_target_leader() -> None:
    world, term = started(brokers=4, partitions=1, replication=2)
    world.brokers.pop(2)
    term.brokers_changed()
    term.reassign({0: [3]})
    world.brokers.pop(3)
    term.brokers_changed()
    term.join_isr(0)
    assert term.moving() and world.state("t", 0).leader == 1
    world.add_brokers(3)
    term.brokers_changed()
    term.join_isr(0, 3)
    assert assignment(world) == ((3,), None, None)


@pytest.mark.parametrize("acts", range(30))
def test_new_controller_resumes_reassignment_from_any_step(acts: int) -> None:
    world, term = started(brokers=5, partitions=3, replication=2)
    term.crash_after = term.acted + acts
    try:
        term.reassign({0: [3, 4], 1: [1, 5], 2: [3, 1]})
        for index in range(3):
            term.join_isr(index)
    except Crash:
        term = Term(world).take_over()
    begun = bool(term.moving()) or assignment(world, 2) == ((3, 1), None, None)
    for index in range(3):
        term.join_isr(index)
    assert not term.moving()
    expected = {0: (3, 4), 1: (1, 5), 2: (3, 1)} if begun else {0: (1, 2), 1: (2, 3), 2: (3, 4)}
    assert world.topics["t"].body.assignment == expected
    for index, replicas in expected.items():
        state = world.state("t", index)
        assert set(state.isr) == set(replicas) and state.leader in replicas
        leader = world.held[state.leader, TopicPartition("t", index)]
        assert (leader.replicas, leader.leader_epoch) == (list(replicas), state.leader_epoch)
    assert {broker for (broker, partition), row in world.held.items() if partition == T0} >= set(expected[0])


@pytest.mark.parametrize(
    ("replicas", "code"),
    [([], 39), ([1, 1], 39), ([-1, 2], 39), ([1, 9], 39), (None, 85), ([1, 3], 0)],
)
def test_reassignment_request_is_validated_as_in_kafka(replicas: list[int] | None, code: int) -> None:
    _, term = started(partitions=1, replication=2)
    assert term.reassign({0: replicas}) == {0: code}
    assert bool(term.moving()) is (code == 0)


def test_replica_on_dead_broker_may_stay_but_not_be_added() -> None:
    world, term = started(brokers=4, partitions=1, replication=2)
    world.brokers.pop(2)
    world.brokers.pop(4)
    term.brokers_changed()
    assert term.reassign({0: [1, 4]}) == {0: 39}
    assert term.reassign({0: [2, 3]}) == {0: 0}
    assert term.reassign({7: [1]}) == {7: 3}
    assert term.reassign({0: [1]}, name="nowhere") == {0: 3}


def test_refused_partition_does_not_affect_others() -> None:
    _, term = started(brokers=4, partitions=2, replication=2)
    assert term.reassign({0: [9, 9], 1: [4, 1], 5: [1]}) == {0: 39, 1: 0, 5: 3}
    assert list(term.moving()) == [1]


def test_partition_not_yet_created_is_assigned_at_once() -> None:
    world = World()
    world.add_brokers(1)
    world.add_topic("t", {0: (2, 3)})
    term = Term(world).take_over()
    assert term.reassign({0: [1]}) == {0: 0}
    assert assignment(world) == ((1,), None, None)
    term.happen(events.Reconcile())
    assert (world.state("t", 0).leader, world.state("t", 0).leader_epoch) == (1, 0)


def test_resize_and_reassignment_exclude_each_other() -> None:
    world, term = started(brokers=4, partitions=4, replication=2)
    term.reassign({0: [4, 1]})
    assert term.resize("t", 8).error_code == 60  # REASSIGNMENT_IN_PROGRESS
    assert term.resize("t", 2).error_code == 60
    term.join_isr(0)
    world.silent = set(world.brokers)
    assert term.resize("t", 8) is None, "under way"
    assert term.reassign({1: [4, 1]}) == {1: 55}  # OPERATION_NOT_ATTEMPTED
    world.silent = set()
    term = Term(world).take_over()
    assert term.reassign({1: [4, 1], 5: [1, 4]}) == {1: 0, 5: 0}, "a child too, once the resize is published"
    assert sorted(term.moving()) == [1, 5]


def test_retiring_partition_is_reassigned_before_removal() -> None:
    world, term = started(brokers=4, partitions=4, replication=2)
    world.offsets[TopicPartition("t", 3)] = (0, 7)
    assert term.resize("t", 3).error_code == 0
    assert term.reassign({3: [2, 3]}) == {3: 0}
    world.offsets[TopicPartition("t", 3)] = (7, 7)
    term.happen(events.TimerFired("drained"))
    for offset in (-2, -1):  # answers to questions that were asked before it began to move
        epoch = world.state("t", 3).leader_epoch
        reported = resize.offset_reported(term.state, TopicPartition("t", 3), epoch, timestamp=offset, offset=7)
        assert reported == []
    assert 3 in world.topics["t"].body.assignment, "not while it moves"
    term.join_isr(3)
    assert assignment(world, 3) == ((2, 3), None, None)
    assert world.state("t", 3).sealed
    term.happen(events.TimerFired("drained"))
    assert 3 not in world.topics["t"].body.assignment


def test_topic_deletion_ends_reassignments_and_reaches_all_replicas() -> None:
    world, term = moving_one()
    world.deletions.add("t")
    term.happen(events.DeletionsRead(frozenset({"t"})))
    assert "t" not in world.topics and not world.held
    assert not term.moving() and term.reassign({0: [1]}) == {0: 3}


@pytest.mark.parametrize("gone", [False, True])
def test_late_outcome_continues_no_reassignment_of_a_deleted_topic(gone: bool) -> None:
    world, term = moving_one()
    before, version = world.states[T0], world.topics["t"].version
    written = Partition(replace(before.state, isr=(1, 2, 3, 4)), before.epoch + 1)
    if gone:
        del world.topics["t"]
        term.happen(events.TopicsRead(frozenset(), ()))
    else:
        world.states[T0] = written
        world.silent |= world.brokers.keys()
        term.happen(events.DeletionsRead(frozenset({"t"})))
    term.happen(events.PartitionsWritten({T0: written}, {}, is_new=False, then=None))
    assert gone or world.topics["t"].version == version


def test_conflicting_write_fails_reassignment_which_may_be_repeated() -> None:
    world, term = started(brokers=4, partitions=1, replication=2)
    topic = world.topics["t"]
    world.topics["t"] = type(topic)(topic.name, topic.body, topic.version + 1, topic.config)
    assert term.reassign({0: [3, 4]}) == {0: 95}
    assert term.reassign({0: [3, 4]}) == {0: 0}


def test_many_partitions_are_reassigned_in_several_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.controller.reassignment.MOVES_AT_ONCE", 3)
    world, term = started(brokers=4, partitions=8, replication=1)
    version = world.topics["t"].version
    assert set(term.reassign({index: [4] for index in range(8)}).values()) == {0}
    assert world.topics["t"].version == version + 2, "six of eight have to move"
    for index in range(8):
        term.join_isr(index)
    assert set(world.topics["t"].body.assignment.values()) == {(4,)} and not term.moving()


def test_reassignments_are_listed_for_requested_partitions() -> None:
    from anabranch.protocol.apis.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsTopics,
    )

    _, term = started(brokers=4, partitions=3, replication=1)
    term.reassign({0: [4], 2: [1]})
    topics = [
        ListPartitionReassignmentsTopics(name="t", partition_indexes=[1, 2]),
        ListPartitionReassignmentsTopics(name="nowhere", partition_indexes=[0]),
    ]
    request = ListPartitionReassignmentsRequest(topics=topics)
    response = term.ask(lambda token: events.ReassignmentsListed(token, request))
    assert [(one.name, [row.partition_index for row in one.partitions]) for one in response.topics] == [("t", [2])]


def test_periodic_rebalance_skips_partitions_under_reassignment() -> None:
    """Its first replica may be in sync already; the leader is chosen once, at the end."""
    world, term = moving_one()
    term.join_isr(0, 3)
    epoch = world.state("t", 0).leader_epoch
    for timer in ("preferred", "rebalance"):
        term.happen(events.TimerFired(timer))
    assert (world.state("t", 0).leader, world.state("t", 0).leader_epoch) == (1, epoch)
    assert term.elect([0]) == {0: 0}, "an admin may"
