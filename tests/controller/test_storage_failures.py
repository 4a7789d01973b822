"""Brokers whose disk refuses a partition are told of it again, so that a resize that waits for them can go on."""

from __future__ import annotations

from controller import events, machine
from controller.effects import Effect, SendToBroker, SetTimer
from controller.events import Answered, DeletionsRead, TimerFired
from protocol.apis.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from protocol.apis.stop_replica import StopReplicaRequest
from protocol.errors import ErrorCode
from tests.controller.world import Term, World


def test_a_replica_that_could_not_be_opened_is_asked_for_again() -> None:
    """Goal: LeaderAndIsr refused with KAFKA_STORAGE_ERROR is repeated until the broker takes it up (schedule 24)."""
    term, _ = refused()
    again = machine.step(term.state, TimerFired(events.REMIND_TIMER))
    assert [(one.broker_id, type(one.request)) for one in again if isinstance(one, SendToBroker)][:1] == [
        (2, LeaderAndIsrRequest)
    ]
    assert machine.step(term.state, TimerFired(events.REMIND_TIMER)) == [], "once per refusal"


def test_a_replica_that_is_to_be_deleted_is_not_asked_for_again() -> None:
    """Goal: the deletion of its topic came in between: it stays deleted (schedule 430)."""
    term, _ = refused()
    decided = machine.step(term.state, DeletionsRead(frozenset({"t"})))
    stopped = [one for one in decided if isinstance(one, SendToBroker) and isinstance(one.request, StopReplicaRequest)]
    assert 2 in {one.broker_id for one in stopped}
    assert machine.step(term.state, TimerFired(events.REMIND_TIMER)) == []


def test_a_replica_of_a_deleted_namesake_makes_room() -> None:
    """Goal: a broker that was away while a replica of its was to go gets rid of it when the name is used again."""
    term, decided = refused(ErrorCode.INCONSISTENT_TOPIC_ID)
    told = [one.request for one in decided if isinstance(one, SendToBroker) and one.broker_id == 2]
    assert [type(one) for one in told] == [StopReplicaRequest]
    row = told[0].topic_states[0].partition_states[0]
    assert (row.partition_index, row.delete_partition, row.leader_epoch) == (0, True, -2), "whatever epoch that one had"
    again = machine.step(term.state, TimerFired(events.REMIND_TIMER))
    assert [type(one.request) for one in again if isinstance(one, SendToBroker)][:1] == [LeaderAndIsrRequest]


def refused(code: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR) -> tuple[Term, list[Effect]]:
    """A topic of which broker 2 could not open its replica, and will be reminded."""
    world = World()
    world.add_brokers(1, 2, 3)
    world.add_topic("t", {0: (1, 2, 3)})
    term = Term(world).take_over()
    state = term.state
    topic_id = state.topics["t"].body.topic_id
    request = next(
        request for broker, request in reversed(world.sent) if broker == 2 and isinstance(request, LeaderAndIsrRequest)
    )
    row = LeaderAndIsrPartitionError(partition_index=0, error_code=code)
    response = LeaderAndIsrResponse(
        error_code=ErrorCode.NONE,
        topics=[LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=[row])],
    )
    decided = machine.step(state, Answered(2, state.brokers[2].epoch, request, response))
    assert SetTimer(events.REMIND_TIMER, state.settings.remind_interval_ms) in decided
    return term, decided
