"""A broker in controlled shutdown first moves its leaderships where possible."""

from __future__ import annotations

from typing import Any

from anabranch.controller import events
from anabranch.protocol.apis.controlled_shutdown import ControlledShutdownRequest
from anabranch.protocol.apis.stop_replica import StopReplicaRequest
from anabranch.protocol.errors import ErrorCode
from tests.controller.test_machine import sent_to
from tests.controller.world import Term, World, started


def shut_down(world: World, term: Term, broker: int, epoch: int | None = None) -> Any:
    known = world.brokers[broker].epoch if broker in world.brokers else 0
    request = ControlledShutdownRequest(broker_id=broker, broker_epoch=known if epoch is None else epoch)
    term.happen(events.ShutdownRequested(3, request))
    return term.replies.pop(3)


def test_controlled_shutdown_moves_leadership_and_shrinks_isrs_before_broker_stops() -> None:
    world, term = started(partitions=3, replication=2)
    sent_before = len(world.sent)
    answer = shut_down(world, term, 1)
    assert (answer.error_code, answer.remaining_partitions) == (0, [])
    assert all(state.leader != 1 and 1 not in state.isr for state in world.states_of("t").values())
    stopped = [one for one in sent_to(world, 1, sent_before) if isinstance(one, StopReplicaRequest)]
    assert stopped and not stopped[0].topic_states[0].partition_states[0].delete_partition
    assert 1 in world.images[2].brokers, "it is still listed, for it still serves"


def test_controlled_shutdown_returns_partitions_without_other_leader() -> None:
    world, term = started(brokers=2, partitions=1, replication=2)
    del world.brokers[2]
    term.brokers_changed()
    answer = shut_down(world, term, 1)
    assert [(one.topic_name, one.partition_index) for one in answer.remaining_partitions] == [("t", 0)]
    assert world.state("t", 0).leader == 1


def test_controlled_shutdown_of_unknown_broker_is_refused() -> None:
    world, term = started()
    assert shut_down(world, term, 9).error_code == ErrorCode.BROKER_NOT_AVAILABLE
    assert shut_down(world, term, 1, epoch=1).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_stopping_broker_that_is_last_in_sync_keeps_leading() -> None:
    """Its records exist nowhere else: the partition goes offline and returns with it."""
    world, term = started(brokers=2, partitions=1, replication=2)
    del world.brokers[2]
    term.brokers_changed()
    world.add_brokers(2)
    term.brokers_changed()
    answer = shut_down(world, term, 1)
    assert [(one.topic_name, one.partition_index) for one in answer.remaining_partitions] == [("t", 0)]
    assert (world.state("t", 0).leader, world.state("t", 0).isr) == (1, (1,))


def test_stopping_broker_gets_no_leadership_until_it_returns() -> None:
    world, term = started(brokers=2, partitions=1, replication=2)
    shut_down(world, term, 1)
    epoch = world.state("t", 0).leader_epoch
    term.join_isr(0, 1)
    assert world.state("t", 0).isr == (2,), "INELIGIBLE_REPLICA"
    assert term.elect([0]) == {0: 80} and world.state("t", 0).leader_epoch == epoch
    assert [row.id for row in world.sent[-1][1].live_brokers] == [1, 2], "it is still listed"
    world.add_brokers(1)
    term.brokers_changed()
    term.join_isr(0, 1)
    assert term.elect([0]) == {0: 0} and world.state("t", 0).leader == 1
