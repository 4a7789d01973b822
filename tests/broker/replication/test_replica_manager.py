"""Replication between brokers over TCP: what is acknowledged survives, what diverges is cut, who waits is woken."""

from __future__ import annotations

import asyncio

import pytest

from broker.replication.partition import Role
from broker.replication.replica_manager import ReplicationWait
from protocol.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.apis.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from protocol.errors import ErrorCode
from tests.broker.replication.replica_cluster import (
    ReplicaCluster,
    batch,
    fetch_request,
    log_values,
    produce_request,
    run,
    until,
    values,
)


def test_acks_all_means_every_replica_has_it() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.lead(1)
        row = await cluster.produce(1, batch("a", "b"))
        assert (row.error_code, row.base_offset) == (0, 0)
        for broker_id in (1, 2, 3):
            assert log_values(cluster.partition(broker_id)) == ["a", "b"]
        assert cluster.partition(1).high_watermark == 2
        fetched = await cluster.fetch(1, 0)
        assert values(fetched.records) == ["a", "b"]
        await until(lambda: cluster.partition(2).high_watermark == 2)

    run(scenario)


def test_a_new_partition_is_fetched_at_once_though_a_long_poll_is_running() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.lead(1, replicas=(1, 2))
        await until(lambda: len(cluster[1].replicas.fetches) == 1)
        await cluster.lead(1, replicas=(1, 2), topic="u")
        assert (await cluster.produce(1, batch("a"), topic="u")).error_code == 0
        assert (await cluster.produce(1, batch("b"))).error_code == 0

    run(scenario, 2, replica_fetch_wait_max_ms=60_000)


def test_what_was_acknowledged_survives_the_leader() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.lead(1)
        for number in range(20):
            assert (await cluster.produce(1, batch(f"{number}"))).error_code == 0
        await cluster.kill(1)
        await cluster.lead(2)
        for number in range(20, 30):
            assert (await cluster.produce(2, batch(f"{number}"))).error_code == 0
        fetched = await cluster.fetch(2, 0)
        assert values(fetched.records) == [str(number) for number in range(30)]

    run(scenario)


@pytest.mark.parametrize("lost", [["lost 1"], ["lost 1", "lost 2", "lost 3"]])
@pytest.mark.parametrize("kept", [["kept 1"], ["kept 1", "kept 2"]])
def test_a_divergent_tail_is_cut_to_the_new_leaders_history(lost: list[str], kept: list[str]) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.lead(1)
        assert (await cluster.produce(1, batch("committed"))).error_code == 0
        # The leader goes on alone: its followers hear of a new leader first.
        cluster.assigned["t", 0].isr = (2, 3)
        await cluster.lead(2, isr=(2, 3), only=(2, 3))
        await until(lambda: cluster.partition(3).leader_id == 2)
        for value in lost:
            assert (await cluster.produce(1, batch(value), acks=1)).error_code == 0
        for value in kept:
            assert (await cluster.produce(2, batch(value))).error_code == 0
        assert log_values(cluster.partition(1)) == ["committed", *lost]
        # Now the old leader hears of it too, and follows.
        await cluster.tell("t", 0, only=(1,))
        await until(lambda: log_values(cluster.partition(1)) == ["committed", *kept])
        assert cluster.partition(1).log.epochs.entries == cluster.partition(2).log.epochs.entries
        await until(lambda: 1 in cluster.partition(2).isr)

    run(scenario)


def test_an_epoch_without_records_does_not_keep_a_follower_from_agreeing() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.lead(1)
        await cluster.produce(1, batch("a"))
        await cluster.lead(1, only=(1,))  # epoch 1 begins on broker 1 alone, and writes nothing
        assert cluster.partition(1).log.epochs.latest_epoch == 1
        await cluster.lead(2, isr=(2, 3))
        assert (await cluster.produce(2, batch("b"))).error_code == 0
        await until(lambda: log_values(cluster.partition(1)) == ["a", "b"])
        assert cluster.partition(1).log.epochs.latest_epoch == 2

    run(scenario)


def test_a_restarted_follower_catches_up_and_joins_again_with_its_new_epoch() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
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

    run(scenario)


def test_a_delayed_proposal_for_an_earlier_life_is_refused_and_tried_again() -> None:
    """KIP-903: between the proposal and the controller's write the follower restarts with an empty disk."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.lead(1, isr=(1, 2))
        cluster.hold = asyncio.Event()
        await cluster.produce(1, batch("a"))
        await until(lambda: len(cluster.proposals) == 1)
        await cluster.kill(3)
        await cluster.start(3)  # a new disk
        cluster.hold.set()
        await until(lambda: cluster.partition(1).pending is None)
        assert cluster.partition(1).isr == (1, 2), "the controller saw that broker 3 had been registered anew"
        await cluster.tell("t", 0, only=(3,))
        await until(lambda: cluster.assigned["t", 0].isr == (1, 2, 3))
        assert log_values(cluster.partition(3)) == ["a"]

    run(scenario)


@pytest.mark.parametrize("trouble", ["connection", "whole answer", "one row"])
def test_a_proposal_that_the_controller_could_not_take_is_made_again(trouble: str) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        cluster.troubles.append(trouble)
        await cluster.lead(1, replicas=(1, 2), isr=(1,))
        await until(lambda: cluster.partition(1).isr == (1, 2))
        assert len(cluster.proposals) == 2
        assert not cluster.troubles

    run(scenario, 2)


def test_a_follower_that_stops_fetching_is_dropped_and_acks_all_goes_on() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.lead(1)
        await cluster.produce(1, batch("a"))
        await cluster.kill(3)
        await cluster.publish()
        row = await cluster.produce(1, batch("b"))
        assert row.error_code == 0
        assert cluster.assigned["t", 0].isr == (1, 2)

    run(scenario, replica_lag_time_max_ms=200)


def test_min_insync_replicas_before_and_after_the_append() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
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

    run(scenario, 2, replica_lag_time_max_ms=200, min_insync_replicas=2)


def test_a_record_that_too_few_replicas_are_left_to_hold_is_not_acknowledged_as_safe() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.lead(1)
        await cluster.produce(1, batch("a"))
        partition = cluster.partition(1)
        partition.min_insync_replicas, partition.isr = 3, (1, 2)
        wait = ReplicationWait(partition, 1)
        assert wait.settled()
        assert wait.code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    run(scenario)


def test_a_request_that_waits_for_replication_times_out() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.lead(1, only=(1,))
        row = await cluster.produce(1, batch("a"), timeout_ms=50)
        assert (row.error_code, row.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)
        assert len(cluster[1].replicas.produces) == 0

    run(scenario)


def test_losing_the_leadership_ends_the_wait_of_producers_and_consumers() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
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

    run(scenario)


def test_a_bump_of_the_own_epoch_fences_readers_but_not_waiting_producers() -> None:
    """A resize raises the leader epoch in place: appended records stay, and are acknowledged when replicated."""

    async def scenario(cluster: ReplicaCluster) -> None:
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

    run(scenario)


def test_a_long_poll_is_woken_by_records_not_by_time() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.lead(1, replicas=(1,))
        connection = await cluster[1].connect()
        fetched = connection.send(fetch_request(0, max_wait_ms=600_000))
        await until(lambda: len(cluster[1].replicas.fetches) == 1)
        await cluster.produce(1, batch("a"))
        assert values((await fetched).responses[0].partitions[0].records) == ["a"]
        await connection.close()

    run(scenario, 1)


def test_a_long_poll_waits_for_committed_bytes_only() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.lead(1, replicas=(1, 2), only=(1,))
        connection = await cluster[1].connect()
        fetched = connection.send(fetch_request(0, max_wait_ms=600_000))
        await until(lambda: len(cluster[1].replicas.fetches) == 1)
        await cluster.produce(1, batch("a"), acks=1)
        assert not fetched.done()
        await cluster.tell("t", 0, only=(2,))
        assert values((await fetched).responses[0].partitions[0].records) == ["a"]
        await connection.close()

    run(scenario, 2)


def test_a_long_poll_waits_for_min_bytes() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
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

    run(scenario, 1)


def test_a_long_poll_whose_client_is_gone_is_forgotten() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.lead(1, replicas=(1,))
        connection = await cluster[1].connect()
        waiting = connection.send(fetch_request(0, max_wait_ms=600_000))
        await until(lambda: len(cluster[1].replicas.fetches) == 1)
        await connection.close()
        with pytest.raises(ConnectionError):
            await waiting
        await until(lambda: len(cluster[1].replicas.fetches) == 0)

    run(scenario, 1)


def test_followers_serve_consumers_what_is_committed() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.lead(1)
        await cluster.produce(1, batch("a"))
        await until(lambda: cluster.partition(2).high_watermark == 1)
        assert values((await cluster.fetch(2, 0)).records) == ["a"]
        assert (await cluster.fetch(2, 0, version=10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(scenario)


def test_a_broker_remembers_what_was_committed_and_what_it_holds() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.lead(1, replicas=(1,))
        await cluster.produce(1, batch("a", "b"))
        files = await cluster.kill(1, clean=True)
        assert files.read_file("replication-offset-checkpoint") == b"0\n1\nt 0 2\n"
        await cluster.start(1, files)
        cluster.assigned["t", 0].leader_epoch += 1
        await cluster.tell("t", 0)
        assert cluster.partition(1).high_watermark == 2
        assert log_values(cluster.partition(1)) == ["a", "b"]

    run(scenario, 1)


def test_a_killed_broker_recovers_its_log_without_a_checkpoint() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.lead(1, replicas=(1, 2))
        await cluster.produce(1, batch("a", producer=(7, 0), sequence=0))
        await cluster.restart(2)
        await cluster.lead(2, isr=(2,), replicas=(1, 2))
        assert log_values(cluster.partition(2)) == ["a"]
        again = await cluster.produce(2, batch("a", producer=(7, 0), sequence=0))
        assert (again.error_code, again.base_offset) == (0, 0), "the producer's state was recovered too"

    run(scenario, 2)


def test_a_log_of_a_deleted_namesake_is_not_taken() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.lead(1, replicas=(1,))
        await cluster.restart(1)
        files = cluster[1].files
        metadata = files.read_file("t-0/partition.metadata")
        assert metadata is not None
        files.write_file("t-0/partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
        assert await cluster.tell("t", 0) == {1: ErrorCode.INCONSISTENT_TOPIC_ID}
        files.write_file("t-0/partition.metadata", metadata)
        assert await cluster.tell("t", 0) == {1: ErrorCode.NONE}

    run(scenario, 1)


def test_a_recreated_index_starts_where_its_earlier_life_ended() -> None:
    """R14: the old records must not come back, and offsets must not be used twice."""

    async def scenario(cluster: ReplicaCluster) -> None:
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

    run(scenario, 2)


def test_a_new_replica_of_a_trimmed_log_starts_at_its_start() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.lead(1, replicas=(1,))
        for number in range(5):
            await cluster.produce(1, batch(f"{number}"))
        cluster.partition(1).log.increment_log_start_offset(3)
        await cluster.lead(1, replicas=(1, 2), isr=(1,))
        await until(lambda: cluster.assigned["t", 0].isr == (1, 2))
        log = cluster.partition(2).log
        assert (log.log_start_offset, log.log_end_offset) == (3, 5)
        assert log_values(cluster.partition(2)) == ["3", "4"]

    run(scenario, 2)


def test_stop_replica_ends_serving_and_deletes_if_asked() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.lead(1, replicas=(1, 2))
        await cluster.produce(1, batch("a"))

        def stop(epoch: int, *, delete: bool) -> StopReplicaRequest:
            row = StopReplicaPartitionState(partition_index=0, leader_epoch=epoch, delete_partition=delete)
            topic = StopReplicaTopicState(topic_name="t", partition_states=[row])
            return StopReplicaRequest(controller_id=9, controller_epoch=1, topic_states=[topic])

        await cluster.lead(1, replicas=(1, 2))
        refused = await cluster.call(cluster[2], stop(0, delete=True))
        assert refused.partition_errors[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
        stopped = await cluster.call(cluster[2], stop(1, delete=False))
        assert stopped.partition_errors[0].error_code == ErrorCode.NONE
        assert (await cluster.fetch(2, 0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert cluster[2].files.exists("t-0")
        await cluster.call(cluster[2], stop(-2, delete=True))
        assert not cluster[2].files.exists("t-0")

    run(scenario, 2)


def test_fences_of_the_controller_and_of_old_epochs() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.lead(1, replicas=(1,))
        assert await cluster.tell("t", 0) == {1: ErrorCode.STALE_CONTROLLER_EPOCH}
        request = cluster.leader_and_isr("t", 0)
        request.controller_epoch = 0
        assert (await cluster.call(cluster[1], request)).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        request.controller_epoch, request.broker_epoch = 1, cluster[1].epoch - 1
        assert (await cluster.call(cluster[1], request)).error_code == ErrorCode.STALE_BROKER_EPOCH

    run(scenario, 1)


def test_coordinators_append_read_and_hear_of_leadership() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        heard: list[tuple[object, ...]] = []
        replicas = cluster[1].replicas
        replicas.on_leader(lambda topic, index, epoch: heard.append(("leads", topic, index, epoch)))
        replicas.on_resign(lambda topic, index: heard.append(("resigns", topic, index)))
        await cluster.lead(1)
        result = await replicas.append("t", 0, batch("a"), acks=-1, timeout_ms=5000)
        assert (result.base_offset, result.leader_epoch) == (0, 0)
        assert log_values(cluster.partition(3)) == ["a"]
        assert values(replicas.read_local("t", 0, 0, 1 << 20)) == ["a"]
        await cluster.lead(2)
        assert heard == [("leads", "t", 0, 0), ("resigns", "t", 0)]
        assert cluster.partition(1).role is Role.FOLLOWER

    run(scenario)


def test_generation_boundaries_are_ends_of_leader_epochs() -> None:
    """R7: the end of generation 0 is asked for with the epoch before the first of generation 1."""

    async def scenario(cluster: ReplicaCluster) -> None:
        async def end_of(epoch: int, current: int) -> tuple[int, int, int]:
            asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
            request = OffsetForLeaderEpochRequest(
                replica_id=-1, topics=[OffsetForLeaderTopic(topic="t", partitions=[asked])]
            )
            row = (await cluster.call(cluster[1], request)).topics[0].partitions[0]
            return row.error_code, row.leader_epoch, row.end_offset

        await cluster.lead(1, generation=0, gen_start=((0, 0),))
        await cluster.produce(1, batch("a", "b"), generation=0)
        assert await end_of(0, 1) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1), "not before the leader knows the bump"
        await cluster.lead(1, generation=1, gen_start=((0, 0), (1, 1)))
        await cluster.produce(1, batch("c"), generation=1)
        assert await end_of(0, 1) == (0, 0, 2)
        assert await end_of(1, 0) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
        assert await end_of(7, 1) == (0, -1, -1)

    run(scenario)
