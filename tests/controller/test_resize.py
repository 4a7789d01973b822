"""Rules R1 to R7, R13 and R14 of a resize, and that any controller completes it."""

from __future__ import annotations

import itertools

import pytest

from anabranch.controller import resize
from anabranch.controller.events import PartitionsRequested, TimerFired
from anabranch.controller.model import TopicBody, TopicPartition
from anabranch.protocol.apis.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from anabranch.protocol.apis.leader_and_isr import LeaderAndIsrRequest
from anabranch.protocol.apis.update_metadata import UpdateMetadataRequest
from anabranch.protocol.linear_hashing import affected_partitions, base_of
from tests.controller.world import Crash, Term, World, spread, started

PATHS = [
    (4, [6]),
    (4, [8]),
    (4, [3]),
    (4, [1]),
    (3, [5, 3]),
    (1, [4, 2]),
    (6, [3, 6]),
    (3, [2, 1, 5]),
    (10, [2, 7]),
    (4, [6, 8, 5, 7]),
]


def final(world: World) -> object:
    """What must not depend on who did the work: epochs differ by elections, the rest may not."""
    body = world.topics["t"].body
    states = {
        index: (state.generation, state.sealed, [g for g, _ in state.gen_start])
        for index, state in world.states_of("t").items()
    }
    return body.history, body.undeleted_partition_count, body.generation, body.plan, sorted(body.assignment), states


def expect_finished(world: World, counts: list[int]) -> None:
    body = world.topics["t"].body
    assert body.plan is None and body.undeleted_partition_count == counts[-1]
    for index, state in world.states_of("t").items():
        assert state.generation == body.lineage.class_generation(index), f"{index}: not of its class generation"
        assert state.sealed == (index >= body.undeleted_partition_count)
        assert [g for g, _ in state.gen_start] == list(body.lineage.class_generations(index))


@pytest.mark.parametrize(("initial", "counts"), PATHS)
def test_r1_each_resize_is_one_generation_of_the_history(initial: int, counts: list[int]) -> None:
    world, term = started(partitions=initial)
    for count in counts:
        assert term.resize("t", count).error_code == 0
    body = world.topics["t"].body
    assert body.history == tuple(enumerate([initial, *counts]))
    expect_finished(world, counts)


@pytest.mark.parametrize(
    ("before", "after"), [(4, 6), (4, 3), (8, 5), (6, 7), (3, 6), (6, 3), (3, 2), (12, 2), (10, 1)]
)
def test_r2_epoch_and_generation_change_in_one_write_and_only_where_keys_move(before: int, after: int) -> None:
    world, term = started(partitions=before)
    quiet = dict(world.states)
    written_before = len(world.history)
    term.resize("t", after)
    touched = affected_partitions(base_of(before), before, after)
    assert sorted(partition.partition for partition, _ in world.history[written_before:]) == touched
    for index in range(max(before, after)):
        known = quiet.get(TopicPartition("t", index))
        if index not in touched:
            assert world.states[TopicPartition("t", index)] == known, "I13: an unaffected partition was written"
        elif known is not None:
            state = world.state("t", index)
            assert (state.leader_epoch, state.generation) == (known.state.leader_epoch + 1, 1)
            assert state.gen_start == (*known.state.gen_start, (1, state.leader_epoch))


def test_r3_plan_is_one_write_that_names_the_new_partitions() -> None:
    world, _ = started(partitions=4)
    term = Term(world, crash_after=None).take_over()
    term.crash_after = term.acted  # the first write after this is the last
    with pytest.raises(Crash):
        term.resize("t", 6)
    body = world.topics["t"].body
    assert body.plan is not None and (body.plan.generation, body.plan.before, body.plan.after) == (1, 4, 6)
    assert sorted(body.assignment) == list(range(6))
    assert (body.generation, body.undeleted_partition_count) == (0, 4), (
        "clients hash with the old count until published"
    )
    Term(world).take_over()
    expect_finished(world, [6])


@pytest.mark.parametrize(("initial", "counts"), PATHS)
def test_r3_new_controller_finishes_resize_interrupted_after_any_effect(initial: int, counts: list[int]) -> None:
    reference, term = started(partitions=initial)
    for count in counts:
        term.resize("t", count)
    points = 0
    for crash_after in itertools.count():
        world, term = started(partitions=initial)
        term.crash_after = term.acted + crash_after
        begun = 0
        try:
            for count in counts:
                term.resize("t", count)
                begun += 1
        except Crash:
            term = Term(world).take_over()
            done = world.topics["t"].body.undeleted_partition_count == counts[begun]
            for count in counts[begun + done :]:
                term.resize("t", count)
            assert final(world) == final(reference)
            expect_finished(world, counts)
            points += 1
        else:
            break
    assert points > 2 * len(counts)


@pytest.mark.parametrize(("initial", "count"), [(4, 6), (4, 3), (1, 4), (6, 3)])
def test_r3_two_crashes_in_one_resize_with_a_broker_lost_in_between(initial: int, count: int) -> None:
    """Every step, with a second crash and the next controller's election."""
    for first in range(0, 40, 3):
        for second in range(0, 40, 3):
            world, term = started(partitions=initial)
            term.crash_after = term.acted + first
            try:
                term.resize("t", count)
            except Crash:
                del world.brokers[1]
                term = Term(world, crash_after=second)
                try:
                    term.take_over()
                except Crash:
                    world.add_brokers(1)
                    term = Term(world).take_over()
            expect_finished(world, [count])


def test_r4_children_are_ready_before_any_parent_is_fenced() -> None:
    world, term = started(partitions=4)
    sent_before = len(world.sent)
    term.resize("t", 6)
    order = [
        row.partition_index
        for _, request in world.sent[sent_before:]
        if isinstance(request, LeaderAndIsrRequest)
        for topic in request.topic_states
        for row in topic.partition_states
    ]
    assert set(order[: order.index(0)]) == {4, 5}
    assert {0, 1} <= set(order)


def test_r4_no_parent_is_fenced_while_a_child_has_no_ready_leader() -> None:
    """C9: old generations are refused and new ones unknown only from the bump to the publication."""
    world, term = started(brokers=4, partitions=4, replication=1)
    world.silent.add(4)
    on_the_silent_one = [CreatePartitionsAssignment(broker_ids=[4]) for _ in range(2)]
    topic = CreatePartitionsTopic(name="t", count=6, assignments=on_the_silent_one)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=1000, validate_only=False)
    term.happen(PartitionsRequested(1, request))
    assert {index: state.generation for index, state in world.states_of("t").items()} == {
        **dict.fromkeys(range(4), 0),
        **dict.fromkeys((4, 5), 1),
    }
    world.silent.clear()
    Term(world).take_over()
    expect_finished(world, [6])


@pytest.mark.parametrize("index", range(4))
def test_r4_shrink_waits_for_retiring_partitions_and_merge_targets(index: int) -> None:
    """K304: a retiring partition's leader without the request still accepts old records."""
    world, term = started(brokers=4, partitions=4, replication=1)
    silent = world.state("t", index).leader
    world.silent.add(silent)
    assert term.resize("t", 2) is None
    assert world.topics["t"].body.generation == 0
    world.silent.clear()
    Term(world).take_over()
    expect_finished(world, [2])


def test_r4_resize_is_published_when_every_affected_leader_has_confirmed() -> None:
    world, term = started(partitions=4)
    leader = world.state("t", 0).leader
    world.silent.add(leader)
    assert term.resize("t", 6) is None
    body = world.topics["t"].body
    assert body.plan is not None and body.generation == 0
    world.silent.clear()
    Term(world).take_over()  # asks again; STALE_CONTROLLER_EPOCH of the others confirms as well
    expect_finished(world, [6])


@pytest.mark.parametrize("index", range(4))
def test_r4_dead_leader_is_not_awaited(index: int) -> None:
    """C8: its partition is offline; the next leader learns the new generation first."""
    world, term = started(brokers=4, partitions=4, replication=1)
    leader = world.state("t", index).leader
    world.silent.add(leader)
    assert term.resize("t", 2) is None
    del world.brokers[leader]
    term.brokers_changed()
    expect_finished(world, [2])
    assert term.replies[1].results[0].error_code == 0


def test_r4_confirmation_from_before_restart_does_not_count() -> None:
    world, term = started(brokers=4, partitions=4, replication=1)
    first, second = world.state("t", 0).leader, world.state("t", 1).leader
    world.silent.add(second)
    assert term.resize("t", 2) is None
    assert term.state.adopted[TopicPartition("t", 0)].broker_id == first, "the first one has confirmed"
    world.silent.add(first)
    world.add_brokers(first)
    term.brokers_changed()
    world.silent.discard(second)
    world.add_brokers(second)
    term.brokers_changed()
    assert world.topics["t"].body.plan is not None, "the first one has not confirmed since it restarted"


def test_r4_awaited_leader_that_restarts_gets_the_request_again() -> None:
    world, term = started(partitions=4, replication=1)
    leader = world.state("t", 0).leader
    world.silent.add(leader)
    assert term.resize("t", 6) is None
    world.silent.clear()
    world.add_brokers(leader)  # a new registration: the same id in another life
    world.held = {key: row for key, row in world.held.items() if key[0] != leader}
    term.brokers_changed()
    expect_finished(world, [6])


def test_r5_unaffected_partitions_keep_their_class_generation() -> None:
    world, term = started(partitions=4)
    term.resize("t", 6)
    assert [world.state("t", index).generation for index in range(6)] == [1, 1, 0, 0, 1, 1]


def test_r6_retiring_partitions_are_sealed_before_merge_targets_accept_records() -> None:
    world, term = started(partitions=4)
    written_before = len(world.history)
    term.resize("t", 2)
    written = [(partition.partition, state.sealed) for partition, state in world.history[written_before:]]
    assert written == [(2, True), (3, True), (0, False), (1, False)]


def test_r7_cut_of_partition_is_the_epoch_that_first_served_the_generation() -> None:
    world, term = started(partitions=4)
    del world.brokers[world.state("t", 0).leader]
    term.brokers_changed()
    epoch = world.state("t", 0).leader_epoch
    assert epoch > 0, "an election came between creation and resize"
    term.resize("t", 8)
    assert world.state("t", 0).gen_start == ((0, 0), (1, epoch + 1))


def test_r12_unpublished_children_and_epochs_are_hidden_from_clients() -> None:
    world, term = started(partitions=4)
    world.silent.add(world.state("t", 0).leader)
    term.resize("t", 6)
    for broker_id in world.brokers.keys() - world.silent:
        shown = world.images[broker_id].topics["t"]
        assert sorted(shown.partitions) == [0, 1, 2, 3]
        assert all(one.leader_epoch == 0 for one in shown.partitions.values())
    world.silent.clear()
    Term(world).take_over()
    for broker_id in world.brokers:
        shown = world.images[broker_id].topics["t"]
        assert sorted(shown.partitions) == [0, 1, 2, 3, 4, 5]
        assert shown.history == ((0, 4), (1, 6))
        assert shown.partitions[0].leader_epoch >= 1


def test_r12_recreated_child_is_hidden_until_published() -> None:
    world, term = started(partitions=4)
    term.resize("t", 3)
    drained(world, term, (3, 70))
    sent_before = len(world.sent)
    for index in (0, 1, 2):
        world.silent.add(world.state("t", index).leader)
    term.resize("t", 6)
    assert world.topics["t"].body.plan is not None
    mentioned = {
        row.partition_index
        for _, request in world.sent[sent_before:]
        if isinstance(request, UpdateMetadataRequest)
        for topic in request.topic_states
        for row in topic.partition_states
    }
    assert not mentioned & {3, 4, 5}


def drained(world: World, term: Term, *offsets: tuple[int, int]) -> None:
    for index, end in offsets:
        world.offsets[TopicPartition("t", index)] = (end, end)
    term.happen(TimerFired("drained"))


def test_r13_drained_retiring_partition_leaves_a_tombstone_and_is_removed() -> None:
    world, term = started(partitions=4)
    term.resize("t", 3)
    world.offsets[TopicPartition("t", 3)] = (10, 70)
    drained(world, term)
    assert TopicPartition("t", 3) in world.states, "sixty records are left in it"
    epoch = world.state("t", 3).leader_epoch
    drained(world, term, (3, 70))
    body = world.topics["t"].body
    assert sorted(body.assignment) == [0, 1, 2]
    assert (body.retired[3].leader_epoch, body.retired[3].end_offset) == (epoch, 70)
    assert TopicPartition("t", 3) not in world.states
    assert not [key for key in world.held if key[1].partition == 3], "its replicas were told to drop it"
    assert all(3 not in image.topics["t"].partitions for image in world.images.values())


def test_r13_retiring_partition_found_empty_twice_retires_once() -> None:
    """The timer and another removal may trigger it at once; the second responses come after the tombstone."""
    world, term = started(partitions=4)
    term.resize("t", 3)
    world.offsets[TopicPartition("t", 3)] = (70, 70)
    term.happen(TimerFired("drained"), TimerFired("drained"))
    assert sorted(world.topics["t"].body.assignment) == [0, 1, 2]
    assert world.topics["t"].body.retired[3].end_offset == 70


def test_r13_retiring_partitions_are_removed_from_highest_index_down() -> None:
    world, term = started(partitions=4)
    term.resize("t", 2)
    world.offsets[TopicPartition("t", 3)] = (0, 5)
    drained(world, term, (2, 9))
    assert sorted(world.topics["t"].body.assignment) == [0, 1, 2, 3], "a gap would renumber partitions for old clients"
    drained(world, term, (3, 5), (2, 9))
    assert sorted(world.topics["t"].body.assignment) == [0, 1]


def test_r14_recreated_index_continues_epochs_and_offsets() -> None:
    world, term = started(partitions=4)
    term.resize("t", 3)
    sealed = world.state("t", 3)
    drained(world, term, (3, 70))
    sent_before = len(world.sent)
    term.resize("t", 4)
    again = world.state("t", 3)
    assert again.leader_epoch == sealed.leader_epoch + 1
    assert again.gen_start == (*sealed.gen_start, (2, again.leader_epoch))
    rows = [
        row
        for _, request in world.sent[sent_before:]
        if isinstance(request, LeaderAndIsrRequest)
        for topic in request.topic_states
        for row in topic.partition_states
        if row.partition_index == 3
    ]
    assert rows and {(row.log_start_offset, row.first_leader_epoch) for row in rows} == {(70, again.leader_epoch)}
    expect_finished(world, [4])


def test_r14_pending_retiring_partition_is_reused_with_its_own_log() -> None:
    world, term = started(partitions=4)
    term.resize("t", 3)
    sealed = world.states[TopicPartition("t", 3)]
    term.resize("t", 4)
    woken = world.states[TopicPartition("t", 3)]
    assert woken.epoch == sealed.epoch + 1, "the same partition, written once"
    assert not woken.state.sealed and woken.state.gen_start == (*sealed.state.gen_start, (2, woken.state.leader_epoch))
    expect_finished(world, [4])


@pytest.mark.parametrize("dead", [None, 1, 2, 3])
def test_r13_removal_resumes_after_a_crash_at_any_effect(dead: int | None) -> None:
    """The tombstone is written first, and any controller completes the removal."""
    for crash_after in itertools.count():
        world, term = started(partitions=4)
        term.resize("t", 3)
        term.crash_after = term.acted + crash_after
        try:
            drained(world, term, (3, 70))
        except Crash:
            if dead is not None:
                del world.brokers[dead]
            term = Term(world).take_over()
            drained(world, term, (3, 70))
            body = world.topics["t"].body
            assert sorted(body.assignment) == [0, 1, 2] and body.retired[3].end_offset == 70
        else:
            break
    assert crash_after > 4


def test_steps_of_a_plan_are_idempotent() -> None:
    """I14: replaying a step does nothing, because each checks whether it is needed."""
    world, term = started(partitions=4)
    term.resize("t", 6)
    before = dict(world.states), world.topics["t"]
    for name in world.topics:
        assert resize.advance(term.state, name) == []
    Term(world).take_over()
    assert (dict(world.states), world.topics["t"]) == before


def test_phases_change_each_affected_partition_once() -> None:
    for base, (before, after) in itertools.product((1, 3, 5), itertools.permutations(range(1, 13), 2)):
        body = TopicBody(
            assignment=spread(before, [1], 1),
            initial_partition_count=1,
            undeleted_partition_count=before,
            base=base,
            history=((0, before),),
        )
        touched = [index for phase in resize.phases(resize.add_plan(body, after, {})) for index in phase.indices]
        assert sorted(touched) == affected_partitions(base, before, after)
