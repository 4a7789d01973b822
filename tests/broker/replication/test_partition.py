"""The partition state machine: roles, fencing, high watermark; on real logs in memory. See `test_partition_isr`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anabranch.broker.replication.partition import Partition, ReplicaRules
from anabranch.broker.storage.log import PartitionLog
from anabranch.broker.storage.log_append import append_as_leader
from anabranch.broker.storage.log_settings import LogSettings
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.protocol.apis.common_structs import GenerationStart
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.records.control import build_end_transaction
from tests.broker.replication.partitions import (
    LAG_MS,
    TOPIC_ID,
    Registry,
    answer,
    append,
    fetched,
    lead,
    state_of,
)
from tests.broker.transactions import PRODUCER, transactional_batch

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
    assert partition.leader_epoch_start_offset == 3
    assert partition.log.epochs.end_offset_for(5, partition.log.log_end_offset) == (5, 3), "generation 0 ended at 3"


def test_term_begins_with_a_leadership_after_another_role(partition: Partition) -> None:
    before = partition.terms
    partition.become_leader(state_of(epoch=2), 0)
    partition.become_leader(state_of(epoch=3), 0)
    assert partition.terms == before + 1
    partition.become_follower(state_of(epoch=4, leader=2))
    partition.become_leader(state_of(epoch=5), 0)
    assert partition.terms == before + 2


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


@pytest.mark.parametrize("leads", [True, False])
def test_ended_transactions_are_forgotten_where_nobody_reads(partition: Partition, leads: bool) -> None:
    lead(partition, 0, epoch=4, replicas=[1], isr=(1,))
    for _ in range(3):
        for content in (transactional_batch("v"), end_of_transaction()):
            append_as_leader(partition.log, content, leader_epoch=4, now_ms=1, origin="coordinator")
    if leads:
        assert partition.advance_high_watermark(0)
    else:
        partition.become_follower(state_of(leader=2, epoch=5))
        assert partition.follow_high_watermark(4)
        assert list(partition.log.producers._unreplicated) == [4], "its marker is not replicated"
        assert partition.follow_high_watermark(6)
    assert not partition.log.producers._unreplicated


def end_of_transaction() -> bytes:
    return build_end_transaction(
        commit=True, producer_id=PRODUCER[0], producer_epoch=PRODUCER[1], coordinator_epoch=1, timestamp_ms=1
    )
