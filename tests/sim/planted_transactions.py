"""Planted bugs of transactions and groups; see `planted`."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

from anabranch.broker.coordinators.classic_groups import group_machine
from anabranch.broker.coordinators.groups.group_transactions import GroupTransactions
from anabranch.broker.coordinators.offsets.committed_offsets import Offsets
from anabranch.broker.coordinators.transactions import transaction_coordinator
from anabranch.broker.coordinators.transactions import transaction_requests as requests
from anabranch.broker.coordinators.transactions.marker_sender import MarkerSender
from anabranch.broker.coordinators.transactions.transaction_coordinator import TransactionCoordinator
from anabranch.broker.coordinators.transactions.transaction_requests import Producer
from anabranch.broker.coordinators.transactions.transactional_id import ONGOING
from anabranch.broker.replication.partition import Partition
from anabranch.broker.storage.producer_state import ProducerStates
from anabranch.clients.consumer.assignors import FunctionAssignor
from anabranch.clients.consumer.progress import _Aborted
from anabranch.clients.producer.transaction_manager import TransactionManager
from anabranch.protocol.errors import KafkaError
from anabranch.protocol.internal_topics import CONSUMER_OFFSETS_TOPIC
from tests.sim.planted import Planter, plant


@plant("transactions: open ones do not hold readers back")
def readers_not_held_back(planter: Planter) -> None:
    planter.replace(Partition, "last_stable_offset", property(lambda partition: partition.high_watermark))


@plant("transactions: aborted ones are not listed")
def aborted_not_listed(planter: Planter) -> None:
    planter.replace(ProducerStates, "aborted_in", lambda states, batches, start_offset: [])


@plant("transactions: a consumer does not filter what was aborted")
def aborted_not_filtered(planter: Planter) -> None:
    planter.replace(_Aborted, "has", lambda aborted, batch: False)


@plant(
    "transactions: a marker of an old coordinator is accepted",
    aim="a coordinator sleeps over its successor",
)
def old_markers_accepted(planter: Planter) -> None:
    """And coordinators go on when they are replaced, as they do when they have not heard of it yet."""
    planter.replace(ProducerStates, "check_marker", lambda states, header, control, *, newer=False: None)
    planter.replace(MarkerSender, "forget", lambda sender, shard: None)


@plant(
    "transactions: a late EndTxn ends the next transaction",
    aim="an EndTxn is late",
)
def late_end_accepted(planter: Planter) -> None:
    """The epoch of an EndTxn is not compared, so a repeated one is carried out twice."""

    def end(transaction: Any, producer: Any, *, from_client: bool = True, **options: Any) -> Any:
        if from_client and producer.id == transaction.producer_id:
            producer = producer._replace(epoch=transaction.producer_epoch)
        return original(transaction, producer, from_client=from_client, **options)

    original = planter.replace(requests, "end", end)


@plant(
    "transactions: a producer begins while the last transaction is being completed",
    aim="requests meet a pending transition",
)
def pending_not_tested(planter: Planter) -> None:
    """It gets the identity of the last transaction, which continues."""

    async def init_producer_id(coordinator: Any, transactional_id: str, timeout_ms: int, expected: Any) -> Any:
        found = coordinator.transaction(transactional_id)
        if found is not None and found.pending is not None:
            return Producer(found.producer_id, found.producer_epoch)
        return await original(coordinator, transactional_id, timeout_ms, expected)

    original = planter.replace(TransactionCoordinator, "init_producer_id", init_producer_id)


@plant("transactions: a replaced producer is not fenced")
def producers_not_fenced(planter: Planter) -> None:
    planter.replace(requests, "_check_producer", lambda transaction, producer: None)
    late_end_accepted(planter)


@plant("transactions: offsets are visible before the commit")
def offsets_visible(planter: Planter) -> None:
    def stage(offsets: Any, producer_id: int, partition: Any, value: Any) -> None:
        offsets.commit(partition, value)

    planter.replace(Offsets, "stage", stage)


@plant("transactions: an abort commits the offsets")
def abort_commits_offsets(planter: Planter) -> None:
    def settle(offsets: Any, producer_id: int, *, commit: bool, marker_offset: int | None = None) -> Any:
        return original(offsets, producer_id, commit=True, marker_offset=marker_offset)

    original = planter.replace(Offsets, "settle", settle)


@plant(
    "transactions: offsets of an old generation are accepted",
    aim="a copier sleeps in a transaction while another takes its partitions",
)
def old_generations_accepted(planter: Planter) -> None:
    def authorize(group: Any, event: Any, now_ms: int) -> None:
        if not event.transactional:
            original(group, event, now_ms)

    original = planter.replace(group_machine, "authorize_commit", authorize)


@plant("transactions: a new coordinator forgets what was decided")
def decisions_forgotten(planter: Planter) -> None:
    planter.replace(TransactionCoordinator, "_on_loaded", lambda coordinator, shard: None)


@plant(
    "transactions: a commit is promised before it is written",
    aim="a coordinator dies with what nobody else has",
)
def promised_too_early(planter: Planter) -> None:
    async def decide(coordinator: Any, shard: Any, transaction: Any, transition: Any) -> None:
        async def later() -> None:
            try:
                await original(coordinator, shard, transaction, transition)
            except KafkaError:
                return

        coordinator._background.spawn(later())

    original = planter.replace(TransactionCoordinator, "_decide", decide)


@plant("transactions: partitions are added in memory only")
def partitions_not_written(planter: Planter) -> None:
    def record_of(transactional_id: str, transition: Any) -> tuple[bytes, bytes]:
        if transition.state is ONGOING:
            transition = dataclasses.replace(transition, partitions=frozenset(list(transition.partitions)[:1]))
        return original(transactional_id, transition)  # type: ignore[no-any-return]

    original = planter.replace(transaction_coordinator, "record_of", record_of)


@plant("transactions: a producer ends one before its records are stored")
def ended_too_early(planter: Planter) -> None:
    def ask(transactions: Any, *, settled: bool) -> Any:
        return original(transactions, settled=True)

    original = planter.replace(TransactionManager, "next", ask)


@plant(
    "transactions: a failed record does not doom one",
    aim="a copier's records cannot be stored in time",
)
def failures_forgiven(planter: Planter) -> None:
    planter.replace(TransactionManager, "batch_failed", lambda transactions, code, why: None)


@plant("groups: an assignor gives a partition to two members")
def two_owners(planter: Planter) -> None:
    def to_all(assignor: Any, metadata: Any, members: Any) -> Any:
        assignment = original(assignor, metadata, members)
        first = next(iter(sorted(assignment)), None)
        if first is not None and (extra := assignment[first].partitions[:1]):
            for member, given in assignment.items():
                if member != first:
                    assignment[member] = replace(given, partitions=given.partitions + extra)
        return assignment

    original = planter.replace(FunctionAssignor, "assign", to_all)


@plant("transactions: their offsets are kept in memory only")
def offsets_not_written(planter: Planter) -> None:
    async def stage(transactions: Any, slot: Any, request: Any, prepared: Any) -> None:
        log = transactions._replicas.leader_of(CONSUMER_OFFSETS_TOPIC, slot.partition).log
        for partition, value in prepared.values.items():
            value.journal_offset = log.log_end_offset
            slot.offsets.stage(request.producer_id, partition, value)

    planter.replace(GroupTransactions, "_stage", stage)
