"""Fetch: limits, fences, ids and names, sessions, and histories that diverge."""

from __future__ import annotations

import pytest

from protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from protocol.errors import ErrorCode
from tests.broker.replication.replica_cluster import (
    ReplicaCluster,
    batch,
    fetch_request,
    run,
    topic_id_of,
    values,
)


@pytest.mark.parametrize("version", range(4, 18))
def test_every_version_reads_the_same_records(version: int) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.lead(1, replicas=(1,))
        await cluster.produce(1, batch("a", "b"))
        row = await cluster.fetch(1, 0, version=version)
        assert (row.error_code, row.high_watermark, values(row.records)) == (0, 2, ["a", "b"])

    run(scenario, 1)


def test_versions_that_cannot_read_batches_say_so_and_read_nothing_else() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.lead(1, replicas=(1,))
        assert (await cluster.fetch(1, 0, version=3)).error_code == 0
        await cluster.produce(1, batch("a"))
        assert (await cluster.fetch(1, 0, version=3)).error_code == ErrorCode.UNSUPPORTED_VERSION

    run(scenario, 1)


@pytest.mark.parametrize(
    ("offset", "epoch", "code"),
    [
        (2, 1, ErrorCode.NONE),
        (3, 1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-1, 1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (0, 0, ErrorCode.FENCED_LEADER_EPOCH),
        (0, 2, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_offsets_and_epochs_are_checked(offset: int, epoch: int, code: ErrorCode) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.lead(1, replicas=(1,))
        await cluster.produce(1, batch("a", "b"))
        await cluster.lead(1, replicas=(1,))
        row = await cluster.fetch(1, offset, epoch=epoch)
        assert row.error_code == code
        assert (row.high_watermark == -1) == (code is not ErrorCode.NONE)

    run(scenario, 1)


def test_topics_that_are_not_known_by_id_or_name() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.lead(1, replicas=(1,))
        assert (await cluster.fetch(1, 0, topic="nowhere")).error_code == ErrorCode.UNKNOWN_TOPIC_ID
        by_name = await cluster.fetch(1, 0, topic="nowhere", version=12)
        assert by_name.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elsewhere = await cluster.fetch(2, 0)
        assert elsewhere.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert elsewhere.current_leader.leader_id == 1

    run(scenario, 2)


def test_the_first_batch_is_whole_however_large_and_the_rest_fits() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.lead(1, replicas=(1,))
        size = len(batch("x"))
        for value in "abc":
            await cluster.produce(1, batch(value))
        assert values((await cluster.fetch(1, 0, max_bytes=1)).records) == ["a"]
        assert values((await cluster.fetch(1, 0, max_bytes=2 * size)).records) == ["a", "b"]
        assert values((await cluster.fetch(1, 0, max_bytes=3 * size - 1)).records) == ["a", "b"]

    run(scenario, 1)


def test_the_budget_is_one_for_all_partitions() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        topics = ["t", "u", "v"]
        for topic in topics:
            await cluster.lead(1, replicas=(1,), topic=topic)
            await cluster.produce(1, batch(topic), topic=topic)
        size = len(batch("t"))

        async def read(max_bytes: int) -> list[list[str]]:
            asked = [
                FetchTopic(
                    topic_id=topic_id_of(topic),
                    partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)],
                )
                for topic in topics
            ]
            request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=max_bytes, topics=asked)
            response = await cluster.call(cluster[1], request)
            return [values(topic.partitions[0].records) for topic in response.responses]

        assert await read(1) == [["t"], [], []], "only the first one may exceed it"
        assert await read(2 * size) == [["t"], ["u"], []]
        assert await read(3 * size - 1) == [["t"], ["u"], []]
        assert await read(3 * size) == [["t"], ["u"], ["v"]]

    run(scenario, 1)


@pytest.mark.parametrize(
    ("session_id", "session_epoch", "code"),
    [(0, -1, 0), (0, 0, 0), (5, 0, 0), (5, -1, 0), (5, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)],
)
def test_sessions_are_never_given_out(session_id: int, session_epoch: int, code: int) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.lead(1, replicas=(1,))
        await cluster.produce(1, batch("a"))
        request = fetch_request(0)
        request.session_id, request.session_epoch = session_id, session_epoch
        response = await cluster.call(cluster[1], request)
        assert (response.error_code, response.session_id) == (code, 0)
        assert len(response.responses) == (0 if code else 1)

    run(scenario, 1)


@pytest.mark.parametrize(
    ("offset", "last_epoch", "diverging", "code"),
    [
        (3, 2, (-1, -1), ErrorCode.NONE),
        (2, 0, (-1, -1), ErrorCode.NONE),
        (3, 0, (0, 2), ErrorCode.NONE),
        (3, 1, (0, 2), ErrorCode.NONE),
        (3, 5, (-1, -1), ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_a_history_that_is_not_ours_is_told_where_it_leaves(
    offset: int, last_epoch: int, diverging: tuple[int, int], code: ErrorCode
) -> None:
    """The log: offsets 0 and 1 of epoch 0, offset 2 of epoch 2; epoch 1 was somebody else's."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.lead(1, replicas=(1,))
        await cluster.produce(1, batch("a", "b"))
        cluster.assigned["t", 0].leader_epoch = 1
        await cluster.lead(1, replicas=(1,))
        await cluster.produce(1, batch("c"))
        row = await cluster.fetch(1, offset, last_epoch=last_epoch)
        assert row.error_code == code
        assert (row.diverging_epoch.epoch, row.diverging_epoch.end_offset) == diverging
        if diverging != (-1, -1):
            assert not row.records

    run(scenario, 1)


def test_strangers_do_not_count_as_followers() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.lead(1, replicas=(1, 2), only=(1,))

        async def code_for(replica: int, epoch: int, broker_epoch: int = -1) -> int:
            request = fetch_request(0, epoch=epoch)
            request.replica_state = ReplicaState(replica_id=replica, replica_epoch=broker_epoch)
            response = await cluster.call(cluster[1], request)
            code: int = response.responses[0].partitions[0].error_code
            return code

        assert await code_for(7, -1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await code_for(7, 0) == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert await code_for(2, 0) == ErrorCode.NONE
        # KIP-903: a fetch of an earlier life must not count for the present one.
        assert await code_for(2, 0, cluster[2].epoch - 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(scenario, 2)
