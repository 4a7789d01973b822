"""WriteTxnMarkers over TCP: effects of a marker, permitted senders, and delivery."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.broker.authorization.peer import Peer
from anabranch.broker.handlers.list_offsets import CONSUMER, LATEST
from anabranch.broker.handlers.write_txn_markers import write_txn_markers
from anabranch.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from anabranch.protocol.apis.write_txn_markers import WriteTxnMarkersRequest
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.records.batch import iter_batches
from anabranch.protocol.records.control import ControlType, read_control
from tests.broker.replication.replica_cluster import ReplicaCluster, batch, replica_cluster, until, values
from tests.broker.transactions import (
    PRODUCER,
    ScriptedCoordinator,
    coordinate_transactions,
    end,
    marker,
    produce,
    transactional_batch,
)
from tests.broker.yields import context

READ_COMMITTED = 1
T0 = (7, "t", 0)


async def open_transaction(cluster: ReplicaCluster, **lead: object) -> ScriptedCoordinator:
    """t-0 with one record of an open transaction."""
    await cluster.lead(1, **lead)  # type: ignore[arg-type]
    coordinator = await coordinate_transactions(cluster, 1, [("t", 0)])
    assert (await produce(cluster, transactional_batch("a"))).error_code == 0
    return coordinator


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("commit", [True, False])
async def test_a_marker_is_a_control_batch_on_all_replicas(version: int, commit: bool) -> None:
    async with replica_cluster() as cluster:
        await open_transaction(cluster)
        assert await end(cluster, marker(commit, coordinator_epoch=5), version=version) == {T0: ErrorCode.NONE}
        for broker_id in (1, 2, 3):
            log = cluster.partition(broker_id).log
            assert log.log_end_offset == 2, "acks=all"
            data = log.read(1, 1000)
            (_, header), *more = iter_batches(data)
            control = read_control(data)
            assert (header.producer_id, header.producer_epoch, header.is_transactional, more) == (*PRODUCER, True, [])
            assert control.type is (ControlType.COMMIT if commit else ControlType.ABORT)
            assert control.coordinator_epoch == 5
            assert len(log.producers.aborted) == (not commit)
            assert not log.producers.has_open(*PRODUCER)


async def test_marker_of_a_lost_connection_does_not_end_the_next_transaction() -> None:
    """The coordinator has written it by another connection, while a long request of the lost one is processed."""
    async with replica_cluster(1) as cluster:
        await open_transaction(cluster, replicas=(1,))
        others = [("elsewhere", index) for index in range(30_000)]
        request, sender = WriteTxnMarkersRequest(markers=[marker(False, *others, ("t", 0))]), Peer("127.0.0.1")
        late = asyncio.ensure_future(write_txn_markers(context(cluster[1].services, 1, sender), request))
        await asyncio.sleep(0)
        sender.connection.is_lost = True
        assert await end(cluster, marker(True)) == {T0: ErrorCode.NONE}
        assert (await produce(cluster, transactional_batch("b", sequence=1))).error_code == 0
        await late
        assert cluster.partition(1).log.producers.has_open(*PRODUCER)


async def test_marker_errors_are_per_producer_and_partition() -> None:
    async with replica_cluster(2) as cluster:
        await open_transaction(cluster, replicas=(1,))
        await cluster.lead(2, replicas=(1, 2), topic="led-elsewhere")
        await cluster.lead(2, replicas=(2,), topic="not-here")
        said = await end(
            cluster,
            marker(True, ("t", 0), ("led-elsewhere", 0), ("not-here", 0), ("nowhere", 3)),
            marker(False, ("t", 0), producer=(8, 0)),
        )
        assert said == {
            T0: ErrorCode.NONE,
            (7, "led-elsewhere", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER,
            (7, "not-here", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            (7, "nowhere", 3): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            (8, "t", 0): ErrorCode.NONE,
        }
        assert cluster.partition(1).log.producers.aborted == [], "a marker without a transaction leaves no trace"
        response = await cluster.call(cluster[1], WriteTxnMarkersRequest(markers=[]))
        assert response.markers == []


async def test_markers_of_stale_coordinators_and_fenced_producers_are_refused() -> None:
    async with replica_cluster(1) as cluster:
        await open_transaction(cluster, replicas=(1,))
        assert await end(cluster, marker(True, coordinator_epoch=4)) == {T0: ErrorCode.NONE}
        old = marker(False, coordinator_epoch=3)
        assert await end(cluster, old) == {T0: ErrorCode.TRANSACTION_COORDINATOR_FENCED}
        fencing = marker(False, producer=(7, 2), coordinator_epoch=4)
        assert await end(cluster, fencing) == {T0: ErrorCode.NONE}
        late = marker(True, producer=(7, 1), coordinator_epoch=5)
        assert await end(cluster, late) == {T0: ErrorCode.INVALID_PRODUCER_EPOCH}
        row = await produce(cluster, transactional_batch("zombie", sequence=1))
        assert row.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert cluster.partition(1).log.log_end_offset == 3


async def test_marker_is_written_to_a_sealed_partition() -> None:
    """R6, K512: no generation check; otherwise a read_committed consumer could not reach the cut."""
    async with replica_cluster(1) as cluster:
        await open_transaction(cluster, replicas=(1,))
        await cluster.lead(1, replicas=(1,), generation=1, gen_start=((0, 0), (1, 1)), sealed=True)
        refused = await produce(cluster, transactional_batch("b", sequence=1), generation=0)
        assert refused.error_code == ErrorCode.INVALID_PARTITION_METADATA
        partition = cluster.partition(1)
        cut = partition.log.epochs.end_offset_for(0, partition.log.log_end_offset)
        assert (cut, partition.last_stable_offset) == ((0, 1), 0), "the transaction holds readers below the boundary"
        assert await end(cluster, marker(True)) == {T0: ErrorCode.NONE}
        assert partition.log.epochs.end_offset_for(0, partition.log.log_end_offset) == cut, "the marker is beyond it"
        assert partition.last_stable_offset == 2


@pytest.mark.parametrize("asker", [CONSUMER, 1])
async def test_marker_after_the_reported_end_of_a_retiring_partition_is_refused(asker: int) -> None:
    """R13: a removed partition ends where its leader reported; elsewhere transactions end normally."""
    async with replica_cluster(1) as cluster:
        sealed = {"replicas": (1,), "generation": 1, "gen_start": ((0, 0), (1, 1)), "sealed": True}
        await cluster.lead(1, replicas=(1,))
        await coordinate_transactions(cluster, 1, [("t", 0)])
        await cluster.lead(1, **sealed)  # type: ignore[arg-type]
        partition = cluster.partition(1)
        row = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=LATEST)
        request = ListOffsetsRequest(replica_id=asker, topics=[ListOffsetsTopic(name="t", partitions=[row])])
        answer = await cluster.call(cluster[1], request, version=9)
        assert answer.topics[0].partitions[0].offset == 0
        if asker == CONSUMER:
            assert await end(cluster, marker(True)) == {T0: ErrorCode.NONE}
            assert partition.log.log_end_offset == 1
            return
        assert await end(cluster, marker(True)) == {T0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert partition.log.log_end_offset == 0
        await cluster.lead(1, **sealed)  # type: ignore[arg-type]
        assert await end(cluster, marker(True)) == {T0: ErrorCode.NONE}


async def test_marker_below_min_isr_or_not_replicated_in_time_is_refused() -> None:
    async with replica_cluster(2, min_insync_replicas=2, request_timeout_ms=200) as cluster:
        await open_transaction(cluster, replicas=(1, 2))
        await cluster.kill(2)
        assert await end(cluster, marker(True)) == {T0: ErrorCode.REQUEST_TIMED_OUT}
        await cluster.lead(1, replicas=(1, 2), isr=(1,))
        assert await end(cluster, marker(True)) == {T0: ErrorCode.NOT_ENOUGH_REPLICAS}
        assert cluster.partition(1).log.log_end_offset == 2, "the second one was not even appended"


async def test_marker_completes_a_waiting_read_committed_fetch() -> None:
    async with replica_cluster() as cluster:
        await open_transaction(cluster)
        row = await cluster.fetch(1, 0, isolation_level=READ_COMMITTED)
        assert (values(row.records), row.high_watermark, row.last_stable_offset) == ([], 1, 0)
        assert row.aborted_transactions == []
        assert values((await cluster.fetch(1, 0)).records) == ["a"], "read_uncommitted does not wait"
        waiting = asyncio.create_task(cluster.fetch(1, 0, isolation_level=READ_COMMITTED, max_wait_ms=60_000))
        await until(lambda: len(cluster[1].replicas.fetches) == 3)  # two of them are the followers'
        await cluster.produce(1, batch("plain"))
        assert not waiting.done(), "more records behind an open transaction change nothing"
        await end(cluster, marker(True))
        row = await waiting
        assert (values(row.records)[:2], row.last_stable_offset) == (["a", "plain"], 3)


async def test_followers_serve_committed_records_too() -> None:
    """KIP-392: a follower's transaction state comes with its log."""
    async with replica_cluster() as cluster:
        await open_transaction(cluster)
        follower = cluster.partition(3)
        await until(lambda: follower.high_watermark == 1)
        row = await cluster.fetch(3, 0, isolation_level=READ_COMMITTED)
        assert (values(row.records), row.last_stable_offset) == ([], 0)
        waiting = asyncio.create_task(cluster.fetch(3, 0, isolation_level=READ_COMMITTED, max_wait_ms=60_000))
        await until(lambda: len(cluster[3].replicas.fetches) == 1)
        await end(cluster, marker(False))
        row = await waiting
        assert row.last_stable_offset == 2
        assert [(one.producer_id, one.first_offset) for one in row.aborted_transactions] == [(7, 0)]


async def test_open_transaction_survives_restart_and_failover() -> None:
    async with replica_cluster() as cluster:
        await open_transaction(cluster)
        await until(lambda: cluster.partition(2).high_watermark == 1)
        await cluster.kill(1)
        await cluster.lead(2, isr=(2, 3))
        await until(lambda: cluster.partition(2).high_watermark == 1)
        await coordinate_transactions(cluster, 2)
        row = await produce(cluster, transactional_batch("b", sequence=1), broker_id=2)
        assert (row.error_code, row.base_offset) == (0, 1), "begun under the last leader: nobody has to be asked"
        await cluster.restart(2)
        await cluster.lead(2, isr=(2, 3))
        assert cluster.partition(2).last_stable_offset == 0
        assert await end(cluster, marker(True), broker_id=2) == {T0: ErrorCode.NONE}
        row = await cluster.fetch(2, 0, isolation_level=READ_COMMITTED)
        assert values(row.records)[:2] == ["a", "b"]
