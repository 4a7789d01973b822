"""AlterPartition: the rules in Kafka's order, and KIP-903's delayed request."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.controller import events
from anabranch.controller.model import TopicPartition
from anabranch.protocol.apis.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from anabranch.protocol.apis.leader_and_isr import LeaderAndIsrRequest
from anabranch.protocol.apis.update_metadata import UpdateMetadataRequest
from anabranch.protocol.errors import ErrorCode
from tests.controller.world import Term, World, started

T0 = TopicPartition("t", 0)
TOPIC_ID = b"t".ljust(16, b".")


def ask(
    world: World,
    term: Term,
    isr: list[int],
    *,
    epochs: dict[int, int] | None = None,
    version: int = 3,
    broker: int = 1,
    broker_epoch: int | None = None,
    leader_epoch: int | None = None,
    partition_epoch: int | None = None,
    recovery: int = 0,
    topic_id: bytes = TOPIC_ID,
    index: int = 0,
) -> Any:
    committed = world.states[T0]
    row = PartitionData(
        partition_index=index,
        leader_epoch=committed.state.leader_epoch if leader_epoch is None else leader_epoch,
        partition_epoch=committed.epoch if partition_epoch is None else partition_epoch,
        leader_recovery_state=recovery,
    )
    if version >= 3:
        known = {one: world.brokers[one].epoch if one in world.brokers else -1 for one in isr}
        row.new_isr_with_epochs = [
            BrokerState(broker_id=one, broker_epoch=(epochs or known).get(one, -1)) for one in isr
        ]
    else:
        row.new_isr = isr
    topic = (
        TopicData(topic_id=topic_id, partitions=[row]) if version >= 2 else TopicData(topic_name="t", partitions=[row])
    )
    epoch = world.brokers[broker].epoch if broker_epoch is None else broker_epoch
    request = AlterPartitionRequest(broker_id=broker, broker_epoch=epoch, topics=[topic])
    term.happen(events.AlterPartitionRequested(77, request))
    return term.replies.pop(77)


def code(answer: Any) -> int:
    return answer.topics[0].partitions[0].error_code


def three() -> tuple[World, Term]:
    return started(brokers=3, partitions=1, replication=3)


def shrunk() -> tuple[World, Term]:
    """Broker 3 is alive, assigned, and out of the ISR."""
    world, term = three()
    assert code(ask(world, term, [1, 2])) == 0
    return world, term


def test_isr_shrink_is_committed_and_sent_to_every_broker() -> None:
    world, term = three()
    sent_before = len(world.sent)
    answer = ask(world, term, [1, 2])
    row = answer.topics[0].partitions[0]
    assert (row.error_code, row.leader_id, row.leader_epoch, row.isr, row.partition_epoch) == (0, 1, 0, [1, 2], 1)
    assert world.state("t", 0).isr == (1, 2) and world.state("t", 0).leader_epoch == 0, "the leader epoch stays"
    kinds = [(broker, type(request)) for broker, request in world.sent[sent_before:]]
    assert kinds == [(one, UpdateMetadataRequest) for one in (1, 2, 3)]


@pytest.mark.parametrize("change", [{"broker_epoch": 5}, {"broker_epoch": -1}])
def test_stale_broker_epoch_is_refused_for_whole_request(change: dict[str, int]) -> None:
    world, term = three()
    assert ask(world, term, [1, 2], **change).error_code == ErrorCode.STALE_BROKER_EPOCH  # type: ignore[arg-type]


def test_unknown_topic_ids_and_partitions_are_refused() -> None:
    world, term = three()
    assert code(ask(world, term, [1, 2], topic_id=b"?" * 16)) == ErrorCode.UNKNOWN_TOPIC_ID
    assert code(ask(world, term, [1, 2], index=9)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_newer_epochs_than_those_of_controller_get_not_controller() -> None:
    world, term = three()
    assert code(ask(world, term, [1, 2], leader_epoch=1)) == ErrorCode.NOT_CONTROLLER
    assert code(ask(world, term, [1, 2], partition_epoch=1)) == ErrorCode.NOT_CONTROLLER


def test_old_leader_epoch_is_fenced() -> None:
    world, term = started(brokers=3, partitions=1, replication=3)
    del world.brokers[3]
    term.brokers_changed()
    assert code(ask(world, term, [1], leader_epoch=0)) == ErrorCode.FENCED_LEADER_EPOCH


def test_repeated_request_succeeds_with_any_partition_epoch() -> None:
    world, term = shrunk()
    written = len(world.history)
    answer = ask(world, term, [1, 2], partition_epoch=0)
    assert code(answer) == 0 and answer.topics[0].partitions[0].partition_epoch == 1
    assert len(world.history) == written


def test_isr_without_leader_makes_leader_resign() -> None:
    """Its disk has failed; one write elects another member and removes it, and all brokers are told."""
    world, term = three()
    sent_before = len(world.sent)
    row = ask(world, term, [2, 3]).topics[0].partitions[0]
    assert (row.error_code, row.leader_id, row.leader_epoch, row.isr) == (0, 2, 1, [2, 3])
    assert world.state("t", 0).leader == 2
    receivers = [broker for broker, request in world.sent[sent_before:] if isinstance(request, LeaderAndIsrRequest)]
    assert sorted(receivers) == [1, 2, 3]


@pytest.mark.parametrize(("asker", "isr"), [(2, [2, 3]), (1, [2]), (1, [3])])
def test_invalid_resignation_of_leader_is_refused(asker: int, isr: list[int]) -> None:
    world, term = three()
    assert code(ask(world, term, isr, broker=asker)) == ErrorCode.INVALID_REQUEST
    assert world.state("t", 0).leader == 1


def test_follower_missing_in_isr_does_not_change_leader() -> None:
    world, term = three()
    assert code(ask(world, term, [1, 3], broker=2)) == 0
    assert (world.state("t", 0).leader, world.state("t", 0).leader_epoch) == (1, 0)


def test_leader_cannot_resign_while_other_replicas_shut_down() -> None:
    world, term = three()
    term.state.shutting_down |= {2, 3}
    assert code(ask(world, term, [2, 3])) == ErrorCode.INELIGIBLE_REPLICA
    assert world.state("t", 0).leader == 1


def test_old_partition_epoch_is_refused() -> None:
    world, term = shrunk()
    assert code(ask(world, term, [1], partition_epoch=0)) == ErrorCode.INVALID_UPDATE_VERSION


def test_recovery_state_is_only_for_one_replica_and_never_set_again() -> None:
    world, term = three()
    assert code(ask(world, term, [1], recovery=1)) == ErrorCode.INVALID_REQUEST
    assert code(ask(world, term, [1, 2], recovery=1)) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("version", "expected"), [(1, ErrorCode.OPERATION_NOT_ATTEMPTED), (2, ErrorCode.INELIGIBLE_REPLICA)]
)
def test_dead_member_makes_isr_ineligible(version: int, expected: ErrorCode) -> None:
    world, term = shrunk()
    del world.brokers[3]
    term.brokers_changed()
    assert code(ask(world, term, [1, 2, 3], version=version)) == expected


def test_stopping_member_makes_isr_ineligible() -> None:
    world, term = shrunk()
    term.state.shutting_down.add(3)
    assert code(ask(world, term, [1, 2, 3])) == ErrorCode.INELIGIBLE_REPLICA


def test_kip_903_isr_with_previous_broker_epoch_is_refused() -> None:
    """F fetches with epoch e1; the leader's AlterPartition with F@e1 is delayed; F restarts with e2, and it arrives."""
    world, term = shrunk()
    previous = world.brokers[3].epoch
    world.add_brokers(3)
    term.brokers_changed()
    before = world.states[T0]
    epochs = {one: world.brokers[one].epoch for one in (1, 2)} | {3: previous}
    assert code(ask(world, term, [1, 2, 3], epochs=epochs)) == ErrorCode.INELIGIBLE_REPLICA
    assert world.states[T0] == before
    assert code(ask(world, term, [1, 2, 3])) == 0, "of its present life it is welcome"


def test_unknown_broker_epochs_of_stock_brokers_are_accepted() -> None:
    world, term = shrunk()
    assert code(ask(world, term, [1, 2, 3], epochs={1: -1, 2: -1, 3: -1})) == 0


def test_conflicting_write_is_an_invalid_update_version() -> None:
    from dataclasses import replace

    from anabranch.controller.model import Partition

    world, term = three()
    known = world.states[T0]
    world.states[T0] = Partition(replace(known.state, isr=(1, 3)), known.epoch + 1)
    assert code(ask(world, term, [1, 2], partition_epoch=0)) == ErrorCode.INVALID_UPDATE_VERSION
    assert term.state.partitions[T0].state.isr == (1, 3), "the controller believes what is committed"


def test_generations_survive_isr_changes() -> None:
    world, term = started(brokers=3, partitions=1, replication=3)
    term.resize("t", 2)
    before = world.state("t", 0)
    assert code(ask(world, term, [1, 2])) == 0
    after = world.state("t", 0)
    assert (after.generation, after.gen_start) == (before.generation, before.gen_start) == (1, ((0, 0), (1, 1)))
