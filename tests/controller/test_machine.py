"""Decisions about joining and leaving brokers, created and deleted topics, and timers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anabranch.controller import effects, events, machine
from anabranch.controller.model import Endpoint, Partition, TopicPartition
from anabranch.protocol.apis.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from anabranch.protocol.apis.leader_and_isr import LeaderAndIsrRequest
from anabranch.protocol.apis.update_metadata import UpdateMetadataRequest
from tests.controller.world import Term, World, started

T0 = TopicPartition("t", 0)


def sent_to(world: World, broker: int, since: int = 0) -> list[Any]:
    return [request for receiver, request in world.sent[since:] if receiver == broker]


def rejoin_isr(world: World, term: Term, index: int, isr: list[int]) -> Any:
    committed = world.states[TopicPartition("t", index)]
    row = PartitionData(
        partition_index=index,
        leader_epoch=committed.state.leader_epoch,
        partition_epoch=committed.epoch,
        new_isr_with_epochs=[BrokerState(broker_id=one, broker_epoch=world.brokers[one].epoch) for one in isr],
    )
    leader = committed.state.leader
    topic = TopicData(topic_id=b"t".ljust(16, b"."), partitions=[row])
    request = AlterPartitionRequest(broker_id=leader, broker_epoch=world.brokers[leader].epoch, topics=[topic])
    term.happen(events.AlterPartitionRequested(9, request))
    return term.replies.pop(9)


def test_new_controller_first_sends_live_brokers() -> None:
    world, _ = started()
    sent_before = len(world.sent)
    Term(world).take_over()
    for broker in world.brokers:
        kinds = [type(request) for request in sent_to(world, broker, sent_before)]
        first = sent_to(world, broker, sent_before)[0]
        assert kinds[0] is UpdateMetadataRequest and not first.topic_states
        assert [one.id for one in first.live_brokers] == [1, 2, 3]
        assert {one.broker_epoch for one in first.live_brokers} == {one.epoch for one in world.brokers.values()}
        assert LeaderAndIsrRequest in kinds
        assert any(
            isinstance(one, UpdateMetadataRequest) and one.type == 2 for one in sent_to(world, broker, sent_before)
        )


def test_every_request_has_controller_epoch_and_broker_epoch_of_receiver() -> None:
    world, term = started()
    term.resize("t", 6)
    for broker, request in world.sent:
        assert request.controller_epoch == 1
        assert request.broker_epoch == world.brokers[broker].epoch


def test_new_controller_elects_leaders_for_brokers_that_died_before() -> None:
    world, _ = started(partitions=1, replication=2)
    del world.brokers[1]
    Term(world).take_over()
    assert (world.state("t", 0).leader, world.state("t", 0).isr) == (2, (2,))


def test_joining_broker_gets_metadata_before_leadership() -> None:
    world, term = started()
    world.add_brokers(4)
    sent_before = len(world.sent)
    term.brokers_changed()
    first = sent_to(world, 4, sent_before)[0]
    assert isinstance(first, UpdateMetadataRequest) and len(first.topic_states[0].partition_states) == 4
    for other in (1, 2, 3):
        assert [one.id for one in sent_to(world, other, sent_before)[0].live_brokers] == [1, 2, 3, 4]


def test_returning_broker_gets_existing_leader_epochs() -> None:
    world, term = started(partitions=1, replication=2)
    del world.brokers[2]
    term.brokers_changed()
    epoch = world.state("t", 0).leader_epoch
    world.add_brokers(2)
    sent_before = len(world.sent)
    term.brokers_changed()
    requests = [one for one in sent_to(world, 2, sent_before) if isinstance(one, LeaderAndIsrRequest)]
    row = requests[0].topic_states[0].partition_states[0]
    assert (row.leader, row.leader_epoch, row.is_new) == (1, epoch, False)
    assert world.state("t", 0).leader_epoch == epoch, "coming back alone bumps nothing"


def test_restarted_broker_is_a_loss_and_a_return() -> None:
    """Same id, another czxid: it may have lost data, so it does not keep its leadership (KIP-380)."""
    world, term = started(partitions=1, replication=2)
    world.add_brokers(1)
    term.brokers_changed()
    after = world.state("t", 0)
    assert (after.leader, after.isr, after.leader_epoch) == (2, (2,), 1)
    assert [one.detail["restarted"] for one in world.announced if one.kind == "broker lost"] == [True]


def test_restarted_broker_that_is_whole_isr_leads_again() -> None:
    world, term = started(partitions=1, replication=1)
    world.add_brokers(1)
    term.brokers_changed()
    assert (world.state("t", 0).leader, world.state("t", 0).leader_epoch) == (1, 2)


def test_listener_change_is_sent_without_election() -> None:
    world, term = started()
    moved = replace(world.brokers[1], endpoints=(Endpoint("PLAINTEXT", "elsewhere", 1234),))
    world.brokers[1] = moved
    written = len(world.history)
    term.brokers_changed()
    assert world.images[3].brokers[1].host == "elsewhere"
    assert len(world.history) == written


def test_preferred_leader_leads_again_soon_after_it_is_in_sync() -> None:
    world, term = started(partitions=1, replication=2)
    del world.brokers[1]
    term.brokers_changed()
    world.add_brokers(1)
    term.brokers_changed()
    term.timers.clear()
    assert rejoin_isr(world, term, 0, [2, 1]).topics[0].partitions[0].error_code == 0
    assert "preferred" in term.timers
    term.happen(events.TimerFired("preferred"))
    after = world.state("t", 0)
    assert (after.leader, after.isr, after.leader_epoch) == (1, (2, 1), 2)


def test_preferred_leader_may_wait_for_the_periodic_check() -> None:
    world, _ = started(partitions=1, replication=2)
    term = Term(world, preferred_election_delay_ms=0).take_over()
    del world.brokers[1]
    term.brokers_changed()
    world.add_brokers(1)
    term.brokers_changed()
    assert rejoin_isr(world, term, 0, [2, 1]).topics[0].partitions[0].error_code == 0
    assert "preferred" not in term.timers


def test_periodic_check_elects_preferred_leader_and_repeats() -> None:
    world, term = started(partitions=1, replication=2)
    committed = world.states[T0]
    world.states[T0] = Partition(replace(committed.state, leader=2, leader_epoch=1), committed.epoch + 1)
    term = Term(world, leader_imbalance_check_interval_ms=777).take_over()
    term.happen(events.TimerFired("rebalance"))
    assert world.state("t", 0).leader == 1
    assert term.timers["rebalance"] == 777


def test_response_from_earlier_broker_epoch_is_ignored() -> None:
    world, term = started(partitions=4)
    leader = world.state("t", 0).leader
    old = world.brokers[leader].epoch
    world.silent.add(leader)
    assert term.resize("t", 6) is None
    request = [one for one in sent_to(world, leader) if isinstance(one, LeaderAndIsrRequest)][-1]
    late = events.ResponseReceived(leader, old - 1, request, world._lead(leader, request))
    term.happen(late)
    assert world.topics["t"].body.plan is not None
    term.happen(replace(late, broker_epoch=old))
    held = [effect for effect in machine.step(term.state, events.Reconcile()) if isinstance(effect, effects.WriteTopic)]
    assert not held, "another phase waits for its own confirmations"


def test_new_controller_elects_before_it_sends_requests() -> None:
    """Brokers get only the final state."""
    world, _ = started(partitions=6, replication=3)
    del world.brokers[1]
    sent_before = len(world.sent)
    Term(world).take_over()
    for broker in world.brokers:
        requests = [
            request for request in sent_to(world, broker, sent_before) if isinstance(request, LeaderAndIsrRequest)
        ]
        assert len(requests) == 1
        rows = requests[0].topic_states[0].partition_states
        assert len(rows) == 6 and all(row.leader in world.brokers and 1 not in row.isr for row in rows)
        updates = [one for one in sent_to(world, broker, sent_before) if isinstance(one, UpdateMetadataRequest)]
        assert [(one.type, len(one.topic_states)) for one in updates] == [(0, 0), (2, 1)]


def test_brokers_share_the_rows_of_equal_requests() -> None:
    world, term = started(partitions=2, replication=3)
    sent_before = len(world.sent)
    term.resize("t", 4)
    rows: dict[tuple[int, int], set[int]] = {}
    for _, request in world.sent[sent_before:]:
        if isinstance(request, LeaderAndIsrRequest):
            for row in request.topic_states[0].partition_states:
                rows.setdefault((row.partition_index, row.leader_epoch), set()).add(id(row))
    assert rows and all(len(made) == 1 for made in rows.values()), "made once for all three"
