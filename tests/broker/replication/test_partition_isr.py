"""ISR changes of a partition: who joins and leaves, and how the controller's response is applied."""

from __future__ import annotations

import math

import pytest

from anabranch.broker.replication.follower import NO_EPOCH
from anabranch.broker.replication.isr_change import IsrChange, Verdict
from anabranch.broker.replication.partition import Partition, Role
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.broker.replication.partitions import LAG_MS, Registry, answer, append, fetched, lead, state_of


def test_lagging_member_leaves_the_isr(partition: Partition) -> None:
    lead(partition, 2)
    fetched(partition, 2, 2, 1000)
    fetched(partition, 3, 1, 1000)
    assert partition.propose_shrink(LAG_MS, 101) is None, "not yet: every member got a fresh start with the epoch"
    change = partition.propose_shrink(LAG_MS + 1, 101)
    assert change is not None
    assert (change.isr, change.epochs) == ((1, 2), (101, 102))
    assert partition.propose_shrink(LAG_MS + 2, 101) is None, "one change at a time"
    assert partition.high_watermark == 1, "the larger ISR counts until the change is committed"
    assert partition.on_answer(change, answer(isr=(1, 2))) is Verdict.COMMITTED
    assert partition.advance_high_watermark(LAG_MS + 3)
    assert (partition.isr, partition.partition_epoch, partition.high_watermark) == ((1, 2), 8, 2)


def test_idle_partition_keeps_its_isr(partition: Partition) -> None:
    lead(partition, 2)
    for replica in (2, 3):
        fetched(partition, replica, 2, 10)
    assert partition.propose_shrink(100 * LAG_MS, 101) is None


def test_member_that_keeps_up_with_a_moving_log_end_stays(partition: Partition) -> None:
    partition.become_leader(state_of(), 0)
    now = 0.0
    for _ in range(10):
        append(partition, 1)
        now += LAG_MS / 2
        end = partition.log.log_end_offset
        fetched(partition, 2, end, now)
        # always one behind, but it has what existed when it last asked
        fetched(partition, 3, end - 1, now)
    assert partition.propose_shrink(now, 101) is None


def test_a_follower_joins_at_the_high_watermark_and_the_leaders_first_offset(partition: Partition) -> None:
    partition.min_insync_replicas = 1
    lead(partition, 3, epoch=4, isr=(1,))
    partition.advance_high_watermark(0)
    partition.become_leader(state_of(epoch=5, isr=(1,)), 0)
    fetched(partition, 2, 2, 10)
    assert partition.propose_expand(2, 101) is None
    fetched(partition, 2, 3, 20)
    change = partition.propose_expand(2, 101)
    assert change is not None
    assert (change.isr, change.epochs, change.partition_epoch) == ((1, 2), (101, 102), 7)


def test_a_follower_at_the_high_watermark_waits_for_the_leaders_first_offset(partition: Partition) -> None:
    """A new leader's high watermark may be lower than its predecessor's."""
    lead(partition, 3, epoch=4, isr=(1, 2))
    fetched(partition, 2, 1, 10)
    partition.become_leader(state_of(epoch=5, isr=(1, 2)), 20)
    assert (partition.high_watermark, partition.leader_epoch_start_offset) == (1, 3)
    fetched(partition, 3, 2, 30)
    assert partition.propose_expand(3, 101) is None
    fetched(partition, 3, 3, 40)
    assert partition.propose_expand(3, 101) is not None


def ready_to_join(partition: Partition, epoch: int) -> None:
    lead(partition, 1, isr=(1, 2))
    fetched(partition, 2, 1, 10)
    fetched(partition, 3, 1, 10, epoch)


def test_kip_903_stale_broker_epoch_is_not_proposed(partition: Partition, registry: Registry) -> None:
    ready_to_join(partition, epoch=103)
    registry.epochs[3] = 203  # it was registered again, perhaps without the records it had
    assert partition.propose_expand(3, 101) is None
    fetched(partition, 3, 1, 20, epoch=203)
    change = partition.propose_expand(3, 101)
    assert change is not None
    assert change.epochs == (101, 102, 203)


def test_kip_903_newer_broker_epoch_waits_for_the_metadata(partition: Partition) -> None:
    ready_to_join(partition, epoch=203)
    assert partition.propose_expand(3, 101) is None


@pytest.mark.parametrize(("fetched_with", "registered"), [(NO_EPOCH, 103), (103, NO_EPOCH)])
def test_kip_903_unknown_broker_epochs_are_accepted(
    partition: Partition, registry: Registry, fetched_with: int, registered: int
) -> None:
    registry.epochs[3] = registered
    ready_to_join(partition, epoch=fetched_with)
    assert partition.propose_expand(3, 101) is not None


def test_a_dead_broker_is_not_proposed(partition: Partition, registry: Registry) -> None:
    ready_to_join(partition, epoch=103)
    del registry.epochs[3]
    assert partition.propose_expand(3, 101) is None


def proposed(partition: Partition) -> IsrChange:
    ready_to_join(partition, epoch=103)
    change = partition.propose_expand(3, 101)
    assert change is not None
    return change


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ErrorCode.INELIGIBLE_REPLICA, Verdict.REVERTED),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, Verdict.REVERTED),
        (ErrorCode.UNKNOWN_TOPIC_ID, Verdict.WAITING),
        (ErrorCode.FENCED_LEADER_EPOCH, Verdict.WAITING),
        (ErrorCode.INVALID_UPDATE_VERSION, Verdict.WAITING),
        (ErrorCode.NOT_CONTROLLER, Verdict.RETRY),
        (ErrorCode.UNKNOWN_SERVER_ERROR, Verdict.RETRY),
    ],
)
def test_refused_proposal_is_kept_or_reverted_by_error_code(
    partition: Partition, code: ErrorCode, verdict: Verdict
) -> None:
    change = proposed(partition)
    assert partition.on_answer(change, answer(code)) is verdict
    assert partition.isr == (1, 2)
    assert (partition.pending is None) == (verdict is Verdict.REVERTED)
    # after a revert, and only then, a later fetch may try again
    assert (partition.propose_expand(3, 101) is not None) == (verdict is Verdict.REVERTED)


def test_response_of_another_epoch_is_ignored(partition: Partition) -> None:
    change = proposed(partition)
    assert partition.on_answer(change, answer(isr=(1, 2, 3), epoch=6)) is Verdict.WAITING
    assert partition.on_answer(change, answer(isr=(1, 2, 3), partition_epoch=6)) is Verdict.WAITING
    assert partition.on_answer(change, answer(isr=(1, 2, 3))) is Verdict.COMMITTED
    assert partition.on_answer(change, answer(isr=(1, 2))) is Verdict.OUTDATED
    assert partition.isr == (1, 2, 3)


def test_response_with_the_same_partition_epoch_commits_without_a_change(partition: Partition) -> None:
    change = proposed(partition)
    same = answer(isr=(1, 2), partition_epoch=partition.partition_epoch)
    assert partition.on_answer(change, same) is Verdict.COMMITTED
    assert (partition.isr, partition.pending) == ((1, 2), None)


@pytest.mark.parametrize(("next_epoch", "unchallenged"), [(6, True), (7, False)])
def test_leader_has_all_earlier_records_at_once_only_after_its_own_epoch(
    partition: Partition, next_epoch: int, unchallenged: bool
) -> None:
    """Another replica may have led between its epoch and the one after the next."""
    partition.become_leader(state_of(epoch=5), 0)
    assert not partition.has_all_earlier_records
    for replica in (2, 3):
        fetched(partition, replica, partition.log.log_end_offset, 0)
    assert partition.has_all_earlier_records
    partition.become_leader(state_of(epoch=next_epoch), 0)
    assert partition.has_all_earlier_records is unchallenged


def test_a_new_leader_epoch_drops_the_pending_change(partition: Partition) -> None:
    change = proposed(partition)
    partition.become_leader(state_of(epoch=6, isr=(1, 2)), 50)
    assert partition.on_answer(change, answer(isr=(1, 2, 3))) is Verdict.OUTDATED
    assert partition.isr == (1, 2)


def test_stopped_replica_drops_its_pending_proposal(partition: Partition) -> None:
    """The index may be reused: two requests for one partition would be sent together."""
    change = proposed(partition)
    partition.stop()
    assert partition.pending is None
    assert partition.on_answer(change, answer(isr=(1, 2, 3))) is Verdict.OUTDATED


def test_a_follower_has_no_isr_and_proposes_nothing(partition: Partition) -> None:
    proposed(partition)
    partition.become_follower(state_of(leader=2, epoch=6))
    assert (partition.role, partition.isr, partition.pending) == (Role.FOLLOWER, (), None)
    assert partition.propose_shrink(math.inf, 101) is None
    with pytest.raises(KafkaError) as refused:
        partition.check_leader()
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
