"""The partition state machine: roles, fencing, high watermark, ISR; on real logs in memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.broker.replication.follower import NO_EPOCH
from anabranch.broker.replication.isr_change import IsrChange, Verdict
from anabranch.broker.replication.partition import Partition, ReplicaRules, Role
from anabranch.broker.storage.log import PartitionLog
from anabranch.broker.storage.log_settings import LogSettings
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.protocol.apis.alter_partition import PartitionDataResult
from anabranch.protocol.apis.common_structs import GenerationStart
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.records.batch_builder import BatchBuilder
from tests.broker.replication.partitions import TOPIC_ID, hosted, state_of

LAG_MS = 30_000


class Registry:
    """Which brokers are alive, and with which epoch: None is dead."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {1: 101, 2: 102, 3: 103}

    def __call__(self, broker_id: int) -> int | None:
        return self.epochs.get(broker_id)


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
def partition(registry: Registry) -> Partition:
    return hosted(ReplicaRules(1, LAG_MS, registry), min_insync_replicas=2)


def append(partition: Partition, records: int) -> None:
    for _ in range(records):
        builder = BatchBuilder()
        builder.append(b"k", b"v", timestamp_ms=1)
        partition.log.append_as_leader(builder.build(), leader_epoch=partition.leader_epoch, now_ms=1, origin="client")


def lead(partition: Partition, records: int, **state: Any) -> None:
    partition.become_leader(state_of(**state), 0)
    append(partition, records)


def fetched(partition: Partition, replica: int, offset: int, now_ms: float, epoch: int | None = None) -> bool:
    partition.record_fetch(replica, offset, 0, 100 + replica if epoch is None else epoch, now_ms)
    return partition.advance_high_watermark(now_ms)


def answer(code: ErrorCode = ErrorCode.NONE, *, isr: tuple[int, ...] = (), epoch: int = 5, partition_epoch: int = 8):
    return PartitionDataResult(
        partition_index=0,
        error_code=code,
        leader_id=1,
        leader_epoch=epoch,
        isr=list(isr),
        partition_epoch=partition_epoch,
    )


# -- listeners ----------------------------------------------------------------------------------------------------


class Hearing:
    """Counts."""

    def __init__(self) -> None:
        self.times = 0

    def on_change(self) -> None:
        self.times += 1


def grant(partition: Partition) -> None:
    change = partition._propose((1, 2), 101)
    partition.on_answer(change, answer(isr=(1, 2)))


@pytest.mark.parametrize(
    "change",
    [
        lambda one: append(one, 1),
        lambda one: one.advance_high_watermark(0),
        lambda one: one.become_leader(state_of(epoch=6), 0),
        lambda one: one.become_follower(state_of(2, epoch=6)),
        lambda one: one.stop(),
        lambda one: one.truncate_to(1),
        lambda one: one.start_over_at(9),
        lambda one: one.move_to(one.log),
        lambda one: one.follow_high_watermark(3),
        lambda one: one.log.increment_log_start_offset(1),
        lambda one: one.record_fetch(2, 2, 0, 102, 0),
        lambda one: one.record_fetch(2, 3, 1, 102, 0),
        lambda one: one.record_fetch(2, 3, 0, 107, 0),
        grant,
    ],
)
def test_every_change_notifies_listeners_once(partition: Partition, change: Callable[[Partition], object]) -> None:
    lead(partition, 2)
    for replica in (2, 3):
        fetched(partition, replica, 2, 0)
    append(partition, 1)
    for replica in (2, 3):
        partition.record_fetch(replica, 3, 0, 100 + replica, 0)
    hearing = Hearing()
    partition.listeners[hearing] = None
    change(partition)
    assert (hearing.times, partition.listeners) == (1, {})
    partition.notify_listeners()
    assert hearing.times == 1, "who wants to hear more has to listen again"


def test_changes_of_a_replacement_log_notify_listeners(partition: Partition) -> None:
    files = MemoryFiles()
    partition.move_to(PartitionLog.open(files, "t-0", LogSettings(), 0))
    hearing = Hearing()
    partition.listeners[hearing] = None
    append(partition, 1)
    assert hearing.times == 1


def test_fetch_without_change_notifies_no_listener(partition: Partition) -> None:
    partition.become_leader(state_of(), 0)
    for replica in (2, 3):
        fetched(partition, replica, 0, 0)
    hearing = Hearing()
    partition.listeners[hearing] = None
    assert not fetched(partition, 2, 0, 5)
    assert not partition.follow_high_watermark(0)
    assert hearing.times == 0


@pytest.mark.parametrize(
    ("spoil", "rests"),
    [
        (lambda one: None, True),
        (lambda one: append(one, 1), False),
        (lambda one: setattr(one, "high_watermark", 0), False),
        (lambda one: one.record_fetch(2, 0, 0, 102, 0), False),
        (lambda one: one.record_fetch(2, 1, 0, 103, 0), False),
        (grant, True),
        (lambda one: setattr(one, "isr", (1, 3)), False),
    ],
)
def test_in_sync_replica_at_the_log_end_is_at_rest(
    partition: Partition, spoil: Callable[[Partition], object], rests: bool
) -> None:
    lead(partition, 1)
    for replica in (2, 3):
        fetched(partition, replica, 1, 0)
    assert partition.at_rest(2, 102) and not partition.at_rest(9, 109)
    spoil(partition)
    assert partition.at_rest(2, 102) is rests


# -- roles and fences ---------------------------------------------------------------------------------------------


def test_leader_and_isr_without_a_higher_leader_epoch_is_stale(partition: Partition) -> None:
    assert partition.check_leader_and_isr(state_of(), TOPIC_ID) is ErrorCode.NONE
    partition.become_leader(state_of(), 0)
    assert partition.check_leader_and_isr(state_of(epoch=5), TOPIC_ID) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert partition.check_leader_and_isr(state_of(epoch=4), TOPIC_ID) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert partition.check_leader_and_isr(state_of(epoch=6), TOPIC_ID) is ErrorCode.NONE
    assert partition.check_leader_and_isr(state_of(epoch=6), b"another-topic-id") is ErrorCode.INCONSISTENT_TOPIC_ID
    assert (
        partition.check_leader_and_isr(state_of(epoch=6, replicas=[2, 3]), TOPIC_ID)
        is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )


def test_leader_epoch_generation_and_seal_change_together(partition: Partition) -> None:
    lead(partition, 3, epoch=5)
    bump = state_of(
        epoch=6,
        generation=1,
        gen_start=[GenerationStart(generation=0, leader_epoch=0), GenerationStart(generation=1, leader_epoch=6)],
        marked_for_deletion=True,
    )
    partition.become_leader(bump, 10)
    assert (partition.leader_epoch, partition.generation, partition.sealed) == (6, 1, True)
    assert partition.gen_start == ((0, 0), (1, 6))
    assert partition.leader_epoch_start_offset == 3
    assert partition.log.epochs.end_offset_for(5, partition.log.log_end_offset) == (5, 3), "generation 0 ended at 3"


def test_checkpointed_high_watermark_is_bounded_by_the_log_end(registry: Registry) -> None:
    files = MemoryFiles()
    files.make_directory("t-0")
    log = PartitionLog.open(files, "t-0", LogSettings(), 0)
    assert Partition("t", 0, TOPIC_ID, log, ReplicaRules(1), high_watermark=9).high_watermark == 0


@pytest.mark.parametrize(
    ("believed", "code"),
    [(-1, None), (5, None), (4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_lower_and_higher_leader_epochs_are_refused(
    partition: Partition, believed: int, code: ErrorCode | None
) -> None:
    partition.become_leader(state_of(epoch=5), 0)
    if code is None:
        partition.check_epoch(believed)
        return
    with pytest.raises(KafkaError) as refused:
        partition.check_epoch(believed)
    assert refused.value.code is code


@pytest.mark.parametrize(
    ("generation", "sealed", "batch_generation", "accepted"),
    [
        (0, False, 0, True),
        (0, False, 1, False),
        (0, True, 0, False),
        (2, False, 2, True),
        (2, False, 1, False),
        (2, False, 3, False),
        (2, True, 2, False),
    ],
)
def test_batch_of_another_generation_is_refused(
    partition: Partition, generation: int, sealed: bool, batch_generation: int, accepted: bool
) -> None:
    partition.become_leader(state_of(generation=generation, marked_for_deletion=sealed), 0)
    partition.has_generations = True
    if accepted:
        partition.check_generation(batch_generation)
        return
    with pytest.raises(KafkaError) as refused:
        partition.check_generation(batch_generation)
    assert refused.value.code is ErrorCode.INVALID_PARTITION_METADATA


def test_first_batch_with_a_generation_is_retriable_until_the_controller_knows(partition: Partition) -> None:
    partition.become_leader(state_of(), 0)
    with pytest.raises(KafkaError) as refused:
        partition.check_generation(0)
    assert refused.value.code.retriable
    partition.has_generations = True
    partition.check_generation(0)


def test_partition_without_generations_serves_generation_zero(partition: Partition) -> None:
    partition.become_leader(state_of(), 0)
    partition.has_generations = True
    partition.check_generation(0)


# -- the high watermark -------------------------------------------------------------------------------------------


def test_high_watermark_is_the_minimum_of_the_isr(partition: Partition) -> None:
    lead(partition, 5)
    assert not fetched(partition, 2, 5, 10), "broker 3 has not fetched yet"
    assert fetched(partition, 3, 2, 20)
    assert partition.high_watermark == 2
    assert fetched(partition, 3, 5, 30)
    assert partition.high_watermark == 5


def test_high_watermark_of_a_leader_does_not_decrease(partition: Partition) -> None:
    lead(partition, 5)
    for replica in (2, 3):
        fetched(partition, replica, 5, 10)
    partition.record_fetch(2, 1, 0, 102, 20)
    assert not partition.advance_high_watermark(20)
    assert partition.high_watermark == 5


def test_offsets_fetched_in_an_older_epoch_do_not_advance_the_high_watermark(partition: Partition) -> None:
    lead(partition, 2, epoch=5)
    for replica in (2, 3):
        fetched(partition, replica, 2, 10)
    append(partition, 2)
    partition.record_fetch(2, 4, 0, 102, 20)
    partition.become_leader(state_of(epoch=6), 30)
    partition.record_fetch(3, 4, 0, 103, 40)
    assert not partition.advance_high_watermark(40)
    assert partition.high_watermark == 2


def test_high_watermark_does_not_advance_below_min_isr(partition: Partition) -> None:
    lead(partition, 3, isr=(1,))
    assert not partition.advance_high_watermark(10)
    with pytest.raises(KafkaError) as refused:
        partition.check_min_isr()
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    partition.min_insync_replicas = 1
    assert partition.advance_high_watermark(10)
    assert partition.high_watermark == 3


def test_min_isr_is_bounded_by_the_number_of_replicas(partition: Partition) -> None:
    partition.min_insync_replicas = 9
    lead(partition, 1, replicas=[1], isr=(1,))
    partition.check_min_isr()
    assert partition.advance_high_watermark(0)


def test_replica_in_a_pending_expand_limits_the_high_watermark(partition: Partition) -> None:
    lead(partition, 4, isr=(1, 2))
    fetched(partition, 2, 4, 10)
    assert partition.high_watermark == 4
    fetched(partition, 3, 4, 20)
    change = partition.propose_expand(3, 101)
    assert change is not None
    append(partition, 1)
    late = 20 + LAG_MS + 1
    fetched(partition, 2, 5, late)
    assert partition.high_watermark == 4, "3 is in the maximal ISR already, however long it has lagged"
    fetched(partition, 3, 5, late)
    assert partition.high_watermark == 5


def test_high_watermark_of_a_follower_is_bounded_by_its_log_end(partition: Partition) -> None:
    lead(partition, 3, epoch=4, replicas=[1], isr=(1,))
    partition.become_follower(state_of(leader=2, epoch=5))
    partition.high_watermark = 0
    assert partition.follow_high_watermark(10)
    assert partition.high_watermark == 3
    assert not partition.follow_high_watermark(1)
    assert partition.high_watermark == 3, "committed stays committed"


# -- the ISR ------------------------------------------------------------------------------------------------------


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
def test_leader_needs_no_superseded_check_after_its_own_next_epoch_only(
    partition: Partition, next_epoch: int, unchallenged: bool
) -> None:
    """Another replica may have led between its epoch and the one after the next."""
    partition.become_leader(state_of(epoch=5), 0)
    assert not partition.check_not_superseded
    for replica in (2, 3):
        fetched(partition, replica, partition.log.log_end_offset, 0)
    assert partition.check_not_superseded
    partition.become_leader(state_of(epoch=next_epoch), 0)
    assert partition.check_not_superseded is unchallenged


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
