"""The partition state table, and leadership decisions, without I/O."""

from __future__ import annotations

import itertools

import pytest

from anabranch.controller import partitions
from anabranch.controller.effects import WritePartitions
from anabranch.controller.follow_ups import Shutdown
from anabranch.controller.model import PartitionPhase, TopicPartition
from anabranch.controller.settings import ControllerSettings
from anabranch.controller.state import ClusterState
from tests.controller.world import Term, World, started

P = PartitionPhase
KAFKA_PREDECESSORS = {
    P.NON_EXISTENT: {P.OFFLINE},
    P.NEW: {P.NON_EXISTENT},
    P.ONLINE: {P.NEW, P.ONLINE, P.OFFLINE},
    P.OFFLINE: {P.NEW, P.ONLINE, P.OFFLINE},
}
T0 = TopicPartition("t", 0)


@pytest.mark.parametrize(("before", "after"), list(itertools.product(P, P)))
def test_phase_transitions_are_those_of_kafka(before: P, after: P) -> None:
    state = ClusterState(ControllerSettings(node_id=1), 1)
    state.set_phase(T0, before)
    if before in KAFKA_PREDECESSORS[after]:
        partitions.move(state, T0, after)
        assert state.phase(T0) is after
    else:
        with pytest.raises(AssertionError):
            partitions.move(state, T0, after)


def test_created_partition_has_first_live_replica_as_leader_and_all_live_in_isr() -> None:
    world = World()
    world.add_brokers(2, 3)
    world.add_topic("t", {0: (1, 2, 3), 1: (1,)})
    Term(world).take_over()
    created = world.state("t", 0)
    assert (created.leader, created.isr, created.leader_epoch) == (2, (2, 3), 0)
    assert created.gen_start == ((0, 0),)
    assert TopicPartition("t", 1) not in world.states, "no live replica: it stays new"


def test_partition_without_live_replica_is_created_when_one_joins() -> None:
    world = World()
    world.add_brokers(2)
    world.add_topic("t", {0: (1,)})
    term = Term(world).take_over()
    assert not world.states
    world.add_brokers(1)
    term.brokers_changed()
    assert world.state("t", 0).leader == 1


def test_elections_of_many_partitions_are_written_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The outcome of each takes milliseconds, and the request of a caller is answered after the last."""
    monkeypatch.setattr(partitions, "WRITES_PER_OUTCOME", 2)
    world, term = started(brokers=3, partitions=5, replication=3)
    term.state.shutting_down.add(2)
    shutdown = partitions.shut_down(term.state, 2, 7)
    pieces = [(len(one.writes), one.then) for one in shutdown if isinstance(one, WritePartitions)]
    assert pieces == [(2, None), (2, None), (1, Shutdown(7, 2))]
    del world.brokers[2]
    term.brokers_changed()
    states = world.states_of("t")
    assert len(states) == 5 and all(one.leader != 2 and 2 not in one.isr for one in states.values())
    assert {held.leader for (broker, _), held in world.held.items() if broker == 1} == {1, 3}, "both know it"


def test_piece_of_elections_is_large_enough_to_postpone_resizes_to_the_last_outcome() -> None:
    assert partitions.WRITES_PER_OUTCOME >= partitions.PARTITIONS_AT_ONCE


def test_leader_loss_elects_in_one_write() -> None:
    world, term = started(brokers=3, partitions=1, replication=3)
    del world.brokers[1]
    term.brokers_changed()
    after = world.state("t", 0)
    assert (after.leader, after.isr, after.leader_epoch) == (2, (2, 3), 1)
    assert world.states[T0].epoch == 1


def test_follower_loss_shrinks_isr_with_new_leader_epoch() -> None:
    world, term = started(brokers=3, partitions=1, replication=3)
    del world.brokers[3]
    term.brokers_changed()
    after = world.state("t", 0)
    assert (after.leader, after.isr, after.leader_epoch) == (1, (1, 2), 1)


def test_last_isr_member_is_kept_and_leads_again_on_return() -> None:
    world, term = started(brokers=2, partitions=1, replication=2)
    for gone in (2, 1):
        del world.brokers[gone]
        term.brokers_changed()
    assert (world.state("t", 0).leader, world.state("t", 0).isr) == (-1, (1,))
    world.add_brokers(2)
    term.brokers_changed()
    assert world.state("t", 0).leader == -1, "broker 2 is alive but not in sync"
    world.add_brokers(1)
    term.brokers_changed()
    assert (world.state("t", 0).leader, world.state("t", 0).isr) == (1, (1,))


def test_unclean_election_requires_topic_config() -> None:
    for allowed, leader in (("true", 2), ("false", -1)):
        world, term = started(brokers=2, partitions=1, replication=2, unclean_leader_election_enable=allowed)
        for gone in (2, 1):
            del world.brokers[gone]
            term.brokers_changed()
        world.add_brokers(2)
        term.brokers_changed()
        state = world.state("t", 0)
        assert (state.leader, state.leader_recovery_state) == (leader, 1 if leader == 2 else 0)


def test_imbalance_is_counted_per_preferred_broker() -> None:
    world, term = started(brokers=3, partitions=6, replication=2)
    del world.brokers[1]
    term.brokers_changed()
    moved = [TopicPartition("t", 0), TopicPartition("t", 3)]
    assert partitions.imbalanced_partitions(term.state, 10) == [], "a dead broker is owed nothing"
    world.add_brokers(1)
    term.brokers_changed()
    assert partitions.imbalanced_partitions(term.state, 10) == moved
    assert partitions.imbalanced_partitions(term.state, 100) == []


def test_recreated_partition_continues_epochs() -> None:
    from dataclasses import replace

    from anabranch.controller.elections import Elected
    from anabranch.controller.model import Retired

    world, _ = started(partitions=2)
    topic = world.topics["t"]
    body = replace(topic.body, retired={1: Retired(7, 30, ((0, 0), (2, 7)))})
    born = partitions.initial_state(replace(topic, body=body), 1, Elected(1, (1,)), 5)
    assert (born.leader_epoch, born.gen_start[0]) == (8, (0, 0))
