"""Replication over TCP: acknowledged records survive, diverging logs are truncated, waiters wake up."""

from __future__ import annotations

import asyncio
import errno

import pytest

from anabranch.broker.replication.partition import Role
from anabranch.broker.replication.purgatory import DelayedProduce
from anabranch.broker.storage.log import PartitionLog
from anabranch.protocol.errors import ErrorCode
from tests.broker.replication.replica_cluster import (
    batch,
    fetch_request,
    log_values,
    produce_request,
    replica_cluster,
    until,
    values,
)


async def test_acks_all_is_acknowledged_once_every_replica_has_the_batch() -> None:
    async with replica_cluster() as cluster:
        await cluster.lead(1)
        row = await cluster.produce(1, batch("a", "b"))
        assert (row.error_code, row.base_offset) == (0, 0)
        for broker_id in (1, 2, 3):
            assert log_values(cluster.partition(broker_id)) == ["a", "b"]
        assert cluster.partition(1).high_watermark == 2
        fetched = await cluster.fetch(1, 0)
        assert values(fetched.records) == ["a", "b"]
        await until(lambda: cluster.partition(2).high_watermark == 2)


async def test_acknowledged_records_survive_a_leader_failure() -> None:
    async with replica_cluster() as cluster:
        await cluster.lead(1)
        for number in range(20):
            assert (await cluster.produce(1, batch(f"{number}"))).error_code == 0
        await cluster.kill(1)
        await cluster.lead(2)
        for number in range(20, 30):
            assert (await cluster.produce(2, batch(f"{number}"))).error_code == 0
        fetched = await cluster.fetch(2, 0)
        assert values(fetched.records) == [str(number) for number in range(30)]


async def test_restarted_follower_rejoins_the_isr_with_its_new_broker_epoch() -> None:
    async with replica_cluster() as cluster:
        await cluster.lead(1)
        await cluster.produce(1, batch("a"))
        files = await cluster.kill(3)
        await cluster.lead(1, isr=(1, 2))
        await cluster.produce(1, batch("b"))
        await cluster.start(3, files)
        await cluster.tell("t", 0, only=(3,))
        await until(lambda: cluster.assigned["t", 0].isr == (1, 2, 3))
        assert log_values(cluster.partition(3)) == ["a", "b"]
        members = cluster.proposals[-1].topics[0].partitions[0].new_isr_with_epochs
        assert {member.broker_id: member.broker_epoch for member in members} == {
            broker_id: cluster[broker_id].epoch for broker_id in (1, 2, 3)
        }


async def test_min_insync_replicas_is_checked_before_and_after_the_append() -> None:
    async with replica_cluster(2, replica_lag_time_max_ms=200, min_insync_replicas=2) as cluster:
        await cluster.lead(1, replicas=(1, 2), isr=(1, 2))
        await cluster.produce(1, batch("a"))
        await cluster.kill(2)
        await cluster.publish()
        waiting = asyncio.ensure_future(cluster.produce(1, batch("b"), timeout_ms=500))
        await until(lambda: cluster.assigned["t", 0].isr == (1,))
        # The follower left the ISR while the record waits: the high watermark must not pass a too small ISR (KIP-966).
        assert (await waiting).error_code == ErrorCode.REQUEST_TIMED_OUT
        assert cluster.partition(1).high_watermark == 1
        before = await cluster.produce(1, batch("c"))
        assert before.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert log_values(cluster.partition(1)) == ["a", "b"]
        assert (await cluster.produce(1, batch("d"), acks=1)).error_code == 0


async def test_append_below_min_isr_at_completion_is_not_enough_replicas_after_append() -> None:
    async with replica_cluster() as cluster:
        await cluster.lead(1)
        await cluster.produce(1, batch("a"))
        partition = cluster.partition(1)
        partition.min_insync_replicas, partition.isr = 3, (1, 2)
        wait = DelayedProduce(partition, 1)
        assert wait.is_complete()
        assert wait.code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


async def test_produce_waiting_for_replication_times_out() -> None:
    async with replica_cluster() as cluster:
        await cluster.lead(1, only=(1,))
        row = await cluster.produce(1, batch("a"), timeout_ms=50)
        assert (row.error_code, row.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)
        assert len(cluster[1].replicas.produces) == 0


async def test_lost_leadership_completes_pending_produces_and_fetches() -> None:
    async with replica_cluster() as cluster:
        await cluster.lead(1, only=(1,))
        replicas = cluster[1].replicas
        connection, other = await cluster[1].connect(), await cluster[1].connect()
        produced = connection.send(produce_request(batch("a"), timeout_ms=60_000))
        fetched = other.send(fetch_request(0, max_wait_ms=60_000, epoch=0))
        await until(lambda: len(replicas.produces) == 1 and len(replicas.fetches) >= 1)
        await cluster.lead(2)
        row = (await produced).responses[0].partition_responses[0]
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await fetched).responses[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (len(replicas.produces), len(replicas.fetches)) == (0, 0)
        await connection.close()
        await other.close()


async def test_new_epoch_of_the_same_leader_fences_readers_but_not_pending_produces() -> None:
    """A resize raises the leader epoch in place: appended records stay, and are acknowledged when replicated."""
    async with replica_cluster() as cluster:
        await cluster.lead(1, only=(1,))
        replicas = cluster[1].replicas
        connection, other = await cluster[1].connect(), await cluster[1].connect()
        produced = connection.send(produce_request(batch("a"), timeout_ms=60_000))
        fetched = other.send(fetch_request(0, max_wait_ms=60_000, epoch=0))
        await until(lambda: len(replicas.produces) == 1 and len(replicas.fetches) == 1)
        await cluster.lead(1, generation=1, gen_start=((0, 0), (1, 1)))
        assert (await fetched).responses[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (await produced).responses[0].partition_responses[0].error_code == 0
        await connection.close()
        await other.close()


async def test_long_poll_completes_when_records_arrive() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        connection = await cluster[1].connect()
        fetched = connection.send(fetch_request(0, max_wait_ms=600_000))
        await until(lambda: len(cluster[1].replicas.fetches) == 1)
        await cluster.produce(1, batch("a"))
        assert values((await fetched).responses[0].partitions[0].records) == ["a"]
        await connection.close()


async def test_a_long_poll_waits_for_committed_bytes_only() -> None:
    async with replica_cluster(2) as cluster:
        await cluster.lead(1, replicas=(1, 2), only=(1,))
        connection = await cluster[1].connect()
        fetched = connection.send(fetch_request(0, max_wait_ms=600_000))
        await until(lambda: len(cluster[1].replicas.fetches) == 1)
        await cluster.produce(1, batch("a"), acks=1)
        assert not fetched.done()
        await cluster.tell("t", 0, only=(2,))
        assert values((await fetched).responses[0].partitions[0].records) == ["a"]
        await connection.close()


async def test_a_long_poll_waits_for_min_bytes() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        size = len(batch("a"))
        connection = await cluster[1].connect()
        fetched = connection.send(fetch_request(0, max_wait_ms=600_000, min_bytes=2 * size))
        await until(lambda: len(cluster[1].replicas.fetches) == 1)
        await cluster.produce(1, batch("a"))
        assert not fetched.done()
        assert len(cluster[1].replicas.fetches) == 1
        await cluster.produce(1, batch("b"))
        assert values((await fetched).responses[0].partitions[0].records) == ["a", "b"]
        await connection.close()


async def test_long_poll_of_a_closed_connection_is_removed() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        connection = await cluster[1].connect()
        waiting = connection.send(fetch_request(0, max_wait_ms=600_000))
        await until(lambda: len(cluster[1].replicas.fetches) == 1)
        await connection.close()
        with pytest.raises(ConnectionError):
            await waiting
        await until(lambda: len(cluster[1].replicas.fetches) == 0)


async def test_followers_serve_committed_records_to_consumers() -> None:
    async with replica_cluster() as cluster:
        await cluster.lead(1)
        await cluster.produce(1, batch("a"))
        await until(lambda: cluster.partition(2).high_watermark == 1)
        assert values((await cluster.fetch(2, 0)).records) == ["a"]
        assert (await cluster.fetch(2, 0, version=10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_restarted_broker_restores_high_watermark_and_logs() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        await cluster.produce(1, batch("a", "b"))
        files = await cluster.kill(1, clean=True)
        assert files.read_file("replication-offset-checkpoint") == b"0\n1\nt 0 2\n"
        await cluster.start(1, files)
        cluster.assigned["t", 0].leader_epoch += 1
        await cluster.tell("t", 0)
        assert cluster.partition(1).high_watermark == 2
        assert log_values(cluster.partition(1)) == ["a", "b"]


async def test_a_killed_broker_recovers_its_log_without_a_checkpoint() -> None:
    async with replica_cluster(2) as cluster:
        await cluster.lead(1, replicas=(1, 2))
        await cluster.produce(1, batch("a", producer=(7, 0), sequence=0))
        await cluster.restart(2)
        await cluster.lead(2, isr=(2,), replicas=(1, 2))
        assert log_values(cluster.partition(2)) == ["a"]
        again = await cluster.produce(2, batch("a", producer=(7, 0), sequence=0))
        assert (again.error_code, again.base_offset) == (0, 0), "the producer's state was recovered too"


async def test_recreated_index_starts_at_the_end_of_its_previous_log() -> None:
    """R14: old records must not return, and offsets must not be reused."""
    async with replica_cluster(2) as cluster:
        await cluster.lead(1, replicas=(1, 2))
        await cluster.produce(1, batch("old", "old"))
        await cluster.lead(1, replicas=(1, 2), log_start_offset=2)
        row = await cluster.produce(1, batch("new"))
        assert (row.error_code, row.base_offset, row.log_start_offset) == (0, 2, 2)
        for broker_id in (1, 2):
            assert log_values(cluster.partition(broker_id)) == ["new"]
        assert (await cluster.fetch(1, 0)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        await cluster.lead(1, replicas=(1, 2), log_start_offset=2)
        assert log_values(cluster.partition(1)) == ["new"], "said again, it changes nothing"


@pytest.mark.parametrize("committed", [0, 2])
async def test_recreated_index_drops_the_uncommitted_tail_of_its_previous_log(committed: int) -> None:
    """R14: the log start proves nothing, because other replicas' old incarnations end there."""
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        for value in "committed"[:committed]:
            await cluster.produce(1, batch(value))
        cluster.partition(1).log.increment_log_start_offset(committed)
        await cluster.produce(1, batch("tail", "tail"))
        await cluster.lead(1, replicas=(1,), log_start_offset=committed, first_leader_epoch=1)
        row = await cluster.produce(1, batch("new"))
        assert (row.error_code, row.base_offset) == (0, committed)
        assert log_values(cluster.partition(1)) == ["new"]
        await cluster.lead(1, replicas=(1,), log_start_offset=committed, first_leader_epoch=1)
        assert log_values(cluster.partition(1)) == ["new"], "said again, it changes nothing"


async def test_recreated_index_whose_previous_log_cannot_be_dropped_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The roles of other partitions in the same request must not depend on it."""

    def refuse(log: PartitionLog, offset: int) -> None:
        raise OSError(errno.EROFS, "read-only file system")

    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        await cluster.produce(1, batch("old"))
        with monkeypatch.context() as patched:
            patched.setattr(PartitionLog, "truncate_fully_and_start_at", refuse)
            await cluster.lead(1, replicas=(1,), log_start_offset=1, first_leader_epoch=1)
            assert await cluster.tell("t", 0) == {1: ErrorCode.KAFKA_STORAGE_ERROR}
        assert await cluster.tell("t", 0) == {1: ErrorCode.NONE}
        assert (await cluster.produce(1, batch("new"))).base_offset == 1


async def test_coordinators_receive_leadership_changes() -> None:
    async with replica_cluster() as cluster:
        events: list[tuple[object, ...]] = []
        replicas = cluster[1].replicas
        replicas.on_leader(lambda topic, index, epoch: events.append(("leads", topic, index, epoch)))
        replicas.on_resign(lambda topic, index: events.append(("resigns", topic, index)))
        await cluster.lead(1)
        await cluster.lead(2)
        assert events == [("leads", "t", 0, 0), ("resigns", "t", 0)]
        assert cluster.partition(1).role is Role.FOLLOWER
