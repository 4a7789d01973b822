"""Brokers with a failed disk leave the ISR, and are asked again so that a resize does not wait."""

from __future__ import annotations

from anabranch.controller import events, machine
from anabranch.controller.effects import Effect, Post, SendToBroker, SetTimer
from anabranch.controller.events import DeletionsRead, Reconcile, ResponseReceived, TimerFired
from anabranch.controller.model import TopicPartition
from anabranch.protocol.apis.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from anabranch.protocol.apis.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from anabranch.protocol.errors import ErrorCode
from tests.controller.world import Term, World, started


def test_replica_that_failed_to_open_is_requested_again() -> None:
    """LeaderAndIsr with KAFKA_STORAGE_ERROR is repeated until it succeeds (schedule 24)."""
    term, _ = refused()
    again = machine.step(term.state, TimerFired(events.REMIND_TIMER))
    assert [(one.broker_id, type(one.request)) for one in again if isinstance(one, SendToBroker)][:1] == [
        (2, LeaderAndIsrRequest)
    ]
    assert machine.step(term.state, TimerFired(events.REMIND_TIMER)) == [], "once per refusal"


def test_other_responses_do_not_postpone_the_repetition() -> None:
    """Else it would never happen while a response arrives every second: topics are created, leaders elected."""
    term, _ = refused()
    request = last_leader_and_isr(term.world, 3)
    response = LeaderAndIsrResponse(error_code=ErrorCode.NONE, topics=[])
    assert machine.step(term.state, ResponseReceived(3, term.state.brokers[3].epoch, request, response)) == []


def test_replica_being_deleted_is_not_requested_again() -> None:
    """Its topic was deleted meanwhile (schedule 430)."""
    term, _ = refused()
    decided = machine.step(term.state, DeletionsRead(frozenset({"t"})))
    stopped = [one for one in decided if isinstance(one, SendToBroker) and isinstance(one.request, StopReplicaRequest)]
    assert 2 in {one.broker_id for one in stopped}
    assert machine.step(term.state, TimerFired(events.REMIND_TIMER)) == []


def test_replica_of_deleted_topic_with_same_name_is_removed_first() -> None:
    """A broker that missed a deletion deletes the old replica when the name is reused."""
    term, decided = refused(ErrorCode.INCONSISTENT_TOPIC_ID)
    requests = [one.request for one in decided if isinstance(one, SendToBroker) and one.broker_id == 2]
    assert [type(one) for one in requests] == [StopReplicaRequest]
    row = requests[0].topic_states[0].partition_states[0]
    assert (row.partition_index, row.delete_partition, row.leader_epoch) == (0, True, -2), "whatever epoch that one had"
    again = machine.step(term.state, TimerFired(events.REMIND_TIMER))
    assert [type(one.request) for one in again if isinstance(one, SendToBroker)][:1] == [LeaderAndIsrRequest]


def test_replica_that_could_not_be_deleted_is_requested_again() -> None:
    """Otherwise the topic's deletion waits for any other event, which may never come."""
    _, term = started(brokers=1, partitions=1, replication=1)
    stops = stop_requests(machine.step(term.state, DeletionsRead(frozenset({"t"}))))
    row = StopReplicaPartitionError(topic_name="t", partition_index=0, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    response = StopReplicaResponse(error_code=ErrorCode.NONE, partition_errors=[row])
    decided = machine.step(term.state, ResponseReceived(1, term.state.brokers[1].epoch, stops[0], response))
    assert decided == [SetTimer(events.RETRY_TIMER, term.state.settings.remind_interval_ms)]
    later = ResponseReceived(1, term.state.brokers[1].epoch, stops[0], response)
    assert machine.step(term.state, later) == [], "it does not postpone the retry"
    assert machine.step(term.state, TimerFired(events.RETRY_TIMER)) == [Post(Reconcile())]
    assert stop_requests(machine.step(term.state, Reconcile())) == stops


def stop_requests(decided: list[Effect]) -> list[StopReplicaRequest]:
    requests = [one.request for one in decided if isinstance(one, SendToBroker)]
    return [one for one in requests if isinstance(one, StopReplicaRequest)]


def test_disk_failure_of_replica_being_deleted_elects_no_leader() -> None:
    """A new leadership would make the other replicas again, which may be deleted by now."""
    world, term = started(brokers=3, partitions=1, replication=3)
    late = last_leader_and_isr(world, 1)
    world.silent = {1}
    written = len(world.history)
    term.happen(DeletionsRead(frozenset({"t"})))
    assert not world.held.keys() - {(1, TopicPartition("t", 0))}, "the others have deleted theirs"
    answer(world, term, 1, late)
    assert len(world.history) == written
    assert not world.held.keys() - {(1, TopicPartition("t", 0))}


def test_leader_with_failed_disk_is_replaced_by_in_sync_replica() -> None:
    """One write elects the next replica of the assignment and removes the failed one."""
    world, term = started(brokers=3, partitions=1, replication=3)
    sent_before = len(world.sent)
    answer(world, term, 1)
    now = world.state("t", 0)
    assert (now.leader, now.isr, now.leader_epoch) == (2, (2, 3), 1)
    receivers = [broker for broker, request in world.sent[sent_before:] if isinstance(request, LeaderAndIsrRequest)]
    assert sorted(receivers) == [1, 2, 3]


def test_follower_with_failed_disk_leaves_isr() -> None:
    world, term = started(brokers=3, partitions=1, replication=3)
    answer(world, term, 3)
    now = world.state("t", 0)
    assert (now.leader, now.isr, now.leader_epoch) == (1, (1, 2), 1)
    written = len(world.history)
    answer(world, term, 3)
    assert len(world.history) == written, "it is out already"


def test_last_in_sync_replica_with_failed_disk_stays() -> None:
    world, term = started(brokers=3, partitions=1, replication=3)
    for gone in (2, 3):
        del world.brokers[gone]
    term.brokers_changed()
    assert world.state("t", 0).isr == (1,)
    written = len(world.history)
    answer(world, term, 1)
    assert len(world.history) == written
    world.add_brokers(2)
    term.brokers_changed()
    answer(world, term, 1)
    assert len(world.history) == written, "who is back has yet to catch up"


def test_disk_failure_of_earlier_leader_epoch_is_ignored() -> None:
    world, term = started(brokers=3, partitions=1, replication=3)
    late = last_leader_and_isr(world, 1)
    del world.brokers[3]
    term.brokers_changed()
    written = len(world.history)
    answer(world, term, 1, late)
    assert len(world.history) == written and world.state("t", 0).leader == 1


def last_leader_and_isr(world: World, broker: int) -> LeaderAndIsrRequest:
    """The last LeaderAndIsr to a broker."""
    return next(
        request for one, request in reversed(world.sent) if one == broker and isinstance(request, LeaderAndIsrRequest)
    )


def answer(world: World, term: Term, broker: int, request: LeaderAndIsrRequest | None = None) -> None:
    """The broker's disk refuses partition 0."""
    row = LeaderAndIsrPartitionError(partition_index=0, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    topic = LeaderAndIsrTopicError(topic_id=world.topics["t"].body.topic_id, partition_errors=[row])
    response = LeaderAndIsrResponse(error_code=ErrorCode.NONE, topics=[topic])
    term.happen(
        ResponseReceived(broker, world.brokers[broker].epoch, request or last_leader_and_isr(world, broker), response)
    )


def refused(code: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR) -> tuple[Term, list[Effect]]:
    """A topic whose replica broker 2 could not open."""
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
    decided = machine.step(state, ResponseReceived(2, state.brokers[2].epoch, request, response))
    assert SetTimer(events.REMIND_TIMER, state.settings.remind_interval_ms) in decided
    return term, decided
