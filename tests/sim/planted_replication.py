"""Planted bugs of replication and logs; see `planted`."""

from __future__ import annotations

import asyncio
from typing import Any

import anabranch.broker.storage.segment as segment
from anabranch.broker.handlers import list_offsets
from anabranch.broker.replication import follower_log, isr_changes, log_moves
from anabranch.broker.replication.fetch_reader import FetchReader
from anabranch.broker.replication.isr_change import Verdict
from anabranch.broker.replication.partition import Partition, Role
from anabranch.broker.replication.purgatory import DelayedProduce
from anabranch.broker.replication.replica_fetcher import Fetcher
from anabranch.broker.storage.durability import Durability
from anabranch.broker.storage.epochs import LeaderEpochCache
from anabranch.broker.storage.log import PartitionLog
from anabranch.broker.storage.log_manager import LogManager
from anabranch.broker.storage.producer_state import ProducerStates
from anabranch.clients.connection import Connection
from anabranch.protocol.apis.fetch import FetchRequest
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.sim.planted import Planter, plant


@plant("acknowledge before replication")
def acknowledge_early(planter: Planter) -> None:
    def settled(wait: Any) -> bool:
        wait.code = ErrorCode.NONE
        return True

    planter.replace(DelayedProduce, "is_complete", settled)


@plant("acknowledge below min.insync.replicas")
def acknowledge_alone(planter: Planter) -> None:
    planter.replace(Partition, "effective_min_isr", property(lambda partition: 1))


@plant("no truncation")
def no_truncation(planter: Planter) -> None:
    planter.replace(follower_log, "truncate", lambda partition, leader: None)


@plant("truncation to the high watermark (before KIP-101)")
def truncate_to_high_watermark(planter: Planter) -> None:
    def follow(fetcher: Any, partition: Any) -> None:
        partition.log.truncate_to(partition.high_watermark)
        original(fetcher, partition)

    original = planter.replace(Fetcher, "follow", follow)


@plant(
    "leader epoch of a fetch not checked (before KIP-320)",
    aim="a leader is back with less than a reader has, who still believes in it",
)
def epoch_not_checked(planter: Planter) -> None:
    planter.replace(Partition, "check_epoch", lambda partition, believed: None)


@plant("a former leader answers with a code that the API does not have")
def unexpected_error(planter: Planter) -> None:
    def check_leader(partition: Any) -> None:
        try:
            original(partition)
        except KafkaError as error:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, error.message) from None

    original = planter.replace(Partition, "check_leader", check_leader)


@plant(
    "an elected leader tells an end that it has not heard of (before KIP-207)",
    aim="a leader is asked for its end as soon as it is elected",
)
def end_not_heard_of(planter: Planter) -> None:
    planter.replace(list_offsets, "is_caught_up", lambda partition: True)


@plant("divergence of a fetch not checked")
def divergence_not_checked(planter: Planter) -> None:
    def send(connection: Any, request: Any, **options: Any) -> Any:
        if isinstance(request, FetchRequest):
            for topic in request.topics:
                for row in topic.partitions:
                    row.last_fetched_epoch = -1
        return original(connection, request, **options)

    original = planter.replace(Connection, "send", send)


@plant("high watermark ignores a pending ISR")
def ignore_pending_isr(planter: Planter) -> None:
    planter.replace(Partition, "maximal_isr", property(lambda partition: partition.isr))
    # The grace given to a replica that is about to join would hide it.
    planter.replace(Partition, "_eligible", lambda partition, replica, follower: not partition.pending)


@plant("high watermark from the fastest replica")
def high_watermark_of_the_fastest(planter: Planter) -> None:
    def advance(partition: Any, now_ms: float) -> bool:
        if partition.role is not Role.LEADER or not partition.followers:
            return False
        safe = min(partition.log.log_end_offset, max(one.log_end_offset for one in partition.followers.values()))
        if safe <= partition.high_watermark:
            return False
        partition.high_watermark = safe
        partition.changed()
        return True

    planter.replace(Partition, "advance_high_watermark", advance)


@plant("a replica joins the ISR before it has caught up")
def join_early(planter: Planter) -> None:
    def propose_expand(partition: Any, replica: int, own_broker_epoch: int) -> Any:
        if partition.pending is not None or replica in partition.isr or not partition.is_leader:
            return None
        return partition._propose((*partition.isr, replica), own_broker_epoch)

    planter.replace(Partition, "propose_expand", propose_expand)


@plant("a follower takes over a lower high watermark")
def high_watermark_back(planter: Planter) -> None:
    def follow(partition: Any, leader_high_watermark: int) -> bool:
        partition.high_watermark = min(leader_high_watermark, partition.log.log_end_offset)
        partition.changed()
        return True

    planter.replace(Partition, "follow_high_watermark", follow)


@plant("consumers read above the high watermark")
def read_uncommitted_tail(planter: Planter) -> None:
    planter.replace(FetchReader, "_limit", lambda reading, partition: partition.log.log_end_offset)


@plant("an ISR is asked for while another question about it is open")
def asked_at_once(planter: Planter) -> None:
    async def deliver_all(changes: Any) -> None:
        async def deliver(batch: Any) -> None:
            changes._queue += await changes._deliver(batch)
            await asyncio.sleep(isr_changes.RETRY_PAUSE_S)
            changes._wakeup.set()

        while True:
            await changes._wakeup.wait()
            changes._wakeup.clear()
            batch, changes._queue = changes._queue, []
            under_way.add(asyncio.get_running_loop().create_task(deliver(batch)))

    under_way: set[Any] = set()
    planter.replace(isr_changes.IsrChanges, "_deliver_all", deliver_all)


@plant("late answer to an ISR proposal applied")
def late_answer(planter: Planter) -> None:
    def on_answer(partition: Any, change: Any, answer: Any) -> Any:
        partition.isr = change.isr
        partition.pending = None
        return Verdict.COMMITTED

    planter.replace(Partition, "on_answer", on_answer)


@plant("duplicates of a producer not recognised")
def duplicates_stored(planter: Planter) -> None:
    planter.replace(ProducerStates, "find_duplicate", lambda states, header: None)
    planter.replace(ProducerStates, "check", lambda states, header, **options: None)


@plant("producer state lost when a log is opened")
def producer_state_lost(planter: Planter) -> None:
    def opened(cls: Any, *args: Any, **options: Any) -> Any:
        log = original.__func__(cls, *args, **options)
        log.producers = ProducerStates()
        return log

    original = planter.replace(PartitionLog, "open", classmethod(opened))


@plant("epoch cache not cut with the log")
def epochs_not_cut(planter: Planter) -> None:
    planter.replace(LeaderEpochCache, "truncate_from_end", lambda cache, end_offset: None)


@plant("a flush that does nothing")
def no_flush(planter: Planter) -> None:
    planter.replace(Durability, "flush", lambda known, log_end: None)


@plant("a torn end kept when a log is opened")
def torn_end_kept(planter: Planter) -> None:
    planter.replace(segment, "check_crc", lambda buffer, position, header: True)


@plant(
    "a replica that moves to another log directory leaves its last records behind",
    aim="a replica moves to another log directory while it is written to",
)
def last_piece_left_behind(planter: Planter) -> None:
    def copy_piece(current: Any, future: Any) -> bool:
        original(current, future)
        return True

    original = planter.replace(log_moves, "copy_piece", copy_piece)


@plant(
    "a replica that moves to another log directory forgets its producers",
    aim="a replica moves to another log directory while it is written to",
)
def producers_left_behind(planter: Planter) -> None:
    def promote_future(logs: Any, topic: str, index: int) -> Any:
        logs._logs[topic, index].producers = ProducerStates()
        return original(logs, topic, index)

    original = planter.replace(LogManager, "promote_future", promote_future)
