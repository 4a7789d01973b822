"""ElectLeaders: error codes, and unclean elections."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.controller import events
from anabranch.controller.model import PartitionPhase, TopicPartition
from anabranch.protocol.apis.elect_leaders import ElectLeadersRequest
from tests.controller.world import Term, World, started


def after_a_return(partitions: int = 2) -> tuple[World, Term]:
    """Broker 1 was away and is back, in sync where it joined again: partition 0 only."""
    world, term = started(brokers=2, partitions=partitions, replication=2)
    world.brokers.pop(1)
    term.brokers_changed()
    world.add_brokers(1)
    term.brokers_changed()
    term.join_isr(0)
    return world, term


def test_preferred_leaders_return() -> None:
    world, term = after_a_return()
    assert term.elect([0, 1]) == {0: 0, 1: 84}  # ELECTION_NOT_NEEDED: 2 is what partition 1 prefers
    state = world.state("t", 0)
    assert (state.leader, set(state.isr)) == (1, {1, 2})
    assert world.held[1, TopicPartition("t", 0)].leader_epoch == state.leader_epoch
    assert term.elect([0]) == {0: 84}


def test_election_for_all_partitions_names_only_changed_ones() -> None:
    _, term = after_a_return()
    assert term.elect(None) == {0: 0}
    assert term.elect(None) == {}


def test_out_of_sync_preferred_leader_is_not_available() -> None:
    world, term = started(brokers=2, partitions=1, replication=2)
    world.brokers.pop(1)
    term.brokers_changed()
    assert term.elect([0]) == {0: 80}  # PREFERRED_LEADER_NOT_AVAILABLE
    world.add_brokers(1)
    term.brokers_changed()
    assert term.elect([0]) == {0: 80}, "alive, and not in sync"
    assert term.elect(None) == {0: 80}


def test_unknown_and_deleted_partitions_are_refused() -> None:
    world, term = started(brokers=2, partitions=1, replication=2)
    assert term.elect([7]) == {7: 3}
    assert term.elect([0], name="nowhere") == {0: 3}
    world.brokers.pop(2)
    term.brokers_changed()
    term.happen(events.DeletionsRead(frozenset({"t"})))  # waits for broker 2
    assert term.elect([0]) == {0: 17}  # INVALID_TOPIC_EXCEPTION


def lost_isr() -> tuple[World, Term]:
    """Broker 2 fell out of the ISR, came back, and then broker 1 died: only unclean election helps."""
    world, term = started(brokers=2, partitions=1, replication=2)
    world.brokers.pop(2)
    term.brokers_changed()
    world.add_brokers(2)
    term.brokers_changed()
    world.brokers.pop(1)
    term.brokers_changed()
    assert world.state("t", 0).leader == -1
    return world, term


def test_requested_unclean_election_ignores_config_and_marks_recovery() -> None:
    world, term = lost_isr()
    assert term.elect([0]) == {0: 80}
    assert term.elect([0], unclean=True) == {0: 0}
    state = world.state("t", 0)
    assert (state.leader, state.isr, state.leader_recovery_state) == (2, (2,), 1)
    assert term.elect([0], unclean=True) == {0: 84}, "it has a live leader"


def test_unclean_election_prefers_in_sync_replica() -> None:
    world, term = started(brokers=3, partitions=1, replication=3)
    partition = TopicPartition("t", 0)
    committed = world.states[partition]
    leaderless = replace(committed, state=replace(committed.state, leader=-1, isr=(3,)))
    world.states[partition] = leaderless
    term.state.believe(partition, leaderless)
    term.state.set_phase(partition, PartitionPhase.OFFLINE)
    assert term.elect([0], unclean=True) == {0: 0}
    state = world.state("t", 0)
    assert (state.leader, state.isr, state.leader_recovery_state) == (3, (3,), 0)


def test_election_without_live_replica_is_refused() -> None:
    world, term = lost_isr()
    world.brokers.pop(2)
    term.brokers_changed()
    assert term.elect([0], unclean=True) == {0: 83}  # ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_unclean_election_config_applies_when_read() -> None:
    world, term = lost_isr()
    topic = world.topics["t"]
    term.happen(events.TopicRead(replace(topic, config={"unclean.leader.election.enable": "true"})))
    assert (world.state("t", 0).leader, world.state("t", 0).leader_recovery_state) == (2, 1)


def test_recovering_state_lasts_until_a_leader_recovers() -> None:
    world, term = lost_isr()
    term.elect([0], unclean=True)
    world.brokers.pop(2)
    term.brokers_changed()
    world.add_brokers(2)
    term.brokers_changed()
    assert (world.state("t", 0).leader, world.state("t", 0).leader_recovery_state) == (2, 1)
    world.add_brokers(1)
    term.brokers_changed()
    term.join_isr(0)
    assert (set(world.state("t", 0).isr), world.state("t", 0).leader_recovery_state) == ({1, 2}, 0)


def test_unknown_election_type_is_refused() -> None:
    _, term = started()
    request = ElectLeadersRequest(election_type=7, topic_partitions=None)
    assert term.ask(lambda token: events.ElectionRequested(token, request)).error_code == 42


@pytest.mark.parametrize("unclean", [False, True])
def test_conflicting_write_fails_election(unclean: bool) -> None:
    world, term = lost_isr() if unclean else after_a_return()
    partition = TopicPartition("t", 0)
    world.states[partition] = replace(world.states[partition], epoch=99)
    assert term.elect([0], unclean=unclean) == {0: 95}
    assert term.state.partitions[partition].epoch >= 99
