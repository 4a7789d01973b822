"""Any history of resizes, losses, restarts, silences, drained victims and dead controllers converges (I11).

The world asserts R1, R2 and R12 on every write and request; at the end everybody returns, and what was planned is done.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.events import TimerFired
from controller.model import TopicPartition
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
)


def perform(world: World, term: Term, operation: str, argument: int) -> None:
    match operation:
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


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([1, 3, 4, 6]), st.integers(1, 3), st.lists(OPERATIONS, max_size=14))
def test_any_history_converges(initial: int, replication: int, history: list[tuple[str, int]]) -> None:
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
    body = world.topics["t"].body
    assert body.plan is None
    expect_finished(world, [body.undeleted_partition_count])
    assert all(state.leader in BROKERS for state in world.states_of("t").values())
    assert sorted(body.assignment) == list(range(len(body.assignment))), "no index is skipped"
    for broker in BROKERS:
        shown = world.images[broker].topics["t"]
        assert shown.generation == body.generation
        assert {index: one.leader_epoch for index, one in shown.partitions.items()} == {
            index: state.leader_epoch for index, state in world.states_of("t").items()
        }
