"""Any history of resizes, moves, elections, losses, restarts and dead controllers converges (I11).

The world asserts R1, R2 and R12, and that nothing committed is dropped, on every write and request; at the end
everybody returns, and what was planned is done.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.controller.events import TimerFired
from anabranch.controller.model import TopicPartition
from tests.cases import examples
from tests.controller.test_resize import expect_finished
from tests.controller.world import Crash, Term, World, started

BROKERS = (1, 2, 3, 4)
OPERATIONS = st.one_of(
    st.tuples(st.just("resize"), st.integers(1, 9)),
    st.tuples(st.just("die"), st.sampled_from(BROKERS)),
    st.tuples(st.just("register"), st.sampled_from(BROKERS)),  # a return, or a restart nobody saw
    st.tuples(st.just("silence"), st.sampled_from(BROKERS)),
    st.tuples(st.just("speak"), st.sampled_from(BROKERS)),
    st.tuples(st.just("drain"), st.integers(0, 9)),
    st.tuples(st.just("crash"), st.integers(0, 25)),
    st.tuples(st.just("preferred"), st.just(0)),
    st.tuples(st.just("move"), st.tuples(st.integers(0, 4), st.permutations(BROKERS), st.integers(1, 3))),
    st.tuples(st.just("cancel"), st.integers(0, 4)),
    st.tuples(st.just("catch up"), st.integers(0, 4)),
    st.tuples(st.just("lag"), st.tuples(st.integers(0, 4), st.sampled_from(BROKERS))),
    st.tuples(st.just("elect"), st.booleans()),
)


def perform(world: World, term: Term, operation: str, argument: Any) -> None:
    match operation:
        case "move":
            index, order, count = argument
            term.reassign({index: order[:count]})
        case "cancel":
            term.reassign({argument: None})
        case "catch up" | "lag":
            index, lagging = argument if operation == "lag" else (argument, None)
            if TopicPartition("t", index) in world.states:
                term.join_isr(index, without=lagging)
        case "elect":
            term.elect(None, unclean=argument)
        case "resize":
            term.resize("t", argument)
        case "die":
            world.brokers.pop(argument, None)
            term.brokers_changed()
        case "register" | "speak":
            # A broker that did not answer is noticed when it answers again in another life.
            world.silent.discard(argument)
            world.add_brokers(argument)
            term.brokers_changed()
        case "silence":
            world.silent.add(argument)
        case "drain":
            world.offsets[TopicPartition("t", argument)] = (7, 7)
            term.happen(TimerFired("drained"))
        case "preferred":
            term.happen(TimerFired("preferred"))


def catch_up(world: World, term: Term) -> None:
    for partition in sorted(world.states):
        if partition in world.states:  # completing one move may remove another partition
            term.join_isr(partition.partition)


@settings(max_examples=examples(100, costly=500), deadline=None)
@given(st.sampled_from([1, 3, 4, 6]), st.integers(1, 3), st.lists(OPERATIONS, max_size=14))
def test_any_history_converges(initial: int, replication: int, history: list[tuple[str, Any]]) -> None:
    world, term = started(brokers=4, partitions=initial, replication=replication)
    for operation, argument in history:
        if operation == "crash":
            term.crash_after = term.acted + argument
            continue
        try:
            perform(world, term, operation, argument)
        except Crash:
            term = Term(world)
            term.take_over()
    world.silent.clear()
    for broker in BROKERS:
        world.add_brokers(broker)
    term = Term(world).take_over()
    catch_up(world, term)
    body = world.topics["t"].body
    assert body.plan is None and not body.reassigned
    for index, replicas in body.assignment.items():
        state = world.state("t", index)
        assert set(state.isr) == set(replicas), "whoever is assigned is in sync in the end"
        assert {one for one, partition in world.held if partition.partition == index} >= set(replicas)
        assert all(world.held[one, TopicPartition("t", index)].leader == state.leader for one in replicas)
    expect_finished(world, [body.undeleted_partition_count])
    assert all(state.leader in BROKERS for state in world.states_of("t").values())
    assert sorted(body.assignment) == list(range(len(body.assignment))), "no index is skipped"
    for broker in BROKERS:
        shown = world.images[broker].topics["t"]
        assert shown.generation == body.generation
        assert {index: one.leader_epoch for index, one in shown.partitions.items()} == {
            index: state.leader_epoch for index, state in world.states_of("t").items()
        }
