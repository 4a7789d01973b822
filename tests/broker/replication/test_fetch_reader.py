"""The result of one Fetch: limits, fencing, unknown topics, rack-aware reads, diverging logs."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.broker.replication.replica_selector import RACK_AWARE, preferred_replica
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.protocol.apis.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from anabranch.protocol.errors import ErrorCode
from tests.broker.replication.replica_cluster import (
    batch,
    fetch_request,
    replica_cluster,
    topic_id_of,
    until,
    values,
)
from tests.broker.storage.faulty_files import FaultyFiles


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
async def test_offsets_and_epochs_are_checked(offset: int, epoch: int, code: ErrorCode) -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        await cluster.produce(1, batch("a", "b"))
        await cluster.lead(1, replicas=(1,))
        row = await cluster.fetch(1, offset, epoch=epoch)
        assert row.error_code == code
        assert (row.high_watermark == -1) == (code is not ErrorCode.NONE)


async def test_follower_compares_leader_epochs_first() -> None:
    """Before Fetch v11, a follower serves no consumer."""
    async with replica_cluster(2) as cluster:
        await cluster.lead(1, replicas=(1, 2))
        await cluster.lead(1, replicas=(1, 2))
        codes = {epoch: (await cluster.fetch(2, 0, epoch=epoch, version=10)).error_code for epoch in (-1, 0, 1, 2)}
        assert codes == {
            -1: ErrorCode.NOT_LEADER_OR_FOLLOWER,
            0: ErrorCode.FENCED_LEADER_EPOCH,
            1: ErrorCode.NOT_LEADER_OR_FOLLOWER,
            2: ErrorCode.UNKNOWN_LEADER_EPOCH,
        }


async def test_fetch_of_unknown_topic_is_refused() -> None:
    async with replica_cluster(2) as cluster:
        await cluster.lead(1, replicas=(1,))
        assert (await cluster.fetch(1, 0, topic="nowhere")).error_code == ErrorCode.UNKNOWN_TOPIC_ID
        by_name = await cluster.fetch(1, 0, topic="nowhere", version=12)
        assert by_name.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elsewhere = await cluster.fetch(2, 0)
        assert elsewhere.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert elsewhere.current_leader.leader_id == 1


async def test_first_batch_is_returned_complete_and_others_within_max_bytes() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        size = len(batch("x"))
        for value in "abc":
            await cluster.produce(1, batch(value))
        assert values((await cluster.fetch(1, 0, max_bytes=1)).records) == ["a"]
        assert values((await cluster.fetch(1, 0, max_bytes=2 * size)).records) == ["a", "b"]
        assert values((await cluster.fetch(1, 0, max_bytes=3 * size - 1)).records) == ["a", "b"]


async def test_max_bytes_is_shared_by_all_partitions() -> None:
    async with replica_cluster(1) as cluster:
        topics = ["t", "u", "v"]
        for topic in topics:
            await cluster.lead(1, replicas=(1,), topic=topic)
            await cluster.produce(1, batch(topic), topic=topic)
        size = len(batch("t"))

        async def read(max_bytes: int) -> list[list[str]]:
            fetch_topics = [
                FetchTopic(
                    topic_id=topic_id_of(topic),
                    partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)],
                )
                for topic in topics
            ]
            request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=max_bytes, topics=fetch_topics)
            response = await cluster.call(cluster[1], request)
            return [values(topic.partitions[0].records) for topic in response.responses]

        assert await read(1) == [["t"], [], []], "only the first one may exceed it"
        assert await read(2 * size) == [["t"], ["u"], []]
        assert await read(3 * size - 1) == [["t"], ["u"], []]
        assert await read(3 * size) == [["t"], ["u"], ["v"]]


RACKS = {1: "a", 2: "b", 3: "b"}


@pytest.mark.parametrize(
    ("selector", "rack", "version", "offset", "preferred"),
    [
        (RACK_AWARE, "b", 11, 0, 2),
        (RACK_AWARE, "b", 17, 1, 2),
        (RACK_AWARE, "a", 11, 0, -1),  # the leader's own
        (RACK_AWARE, "c", 11, 0, -1),
        (RACK_AWARE, "", 11, 0, -1),
        (RACK_AWARE, "b", 10, 0, -1),  # has no field for it
        ("", "b", 11, 0, -1),
    ],
)
async def test_preferred_replica_is_in_the_consumers_rack(
    selector: str, rack: str, version: int, offset: int, preferred: int
) -> None:
    async with replica_cluster(2, replica_selector_class=selector, replica_fetch_wait_max_ms=20) as cluster:
        cluster.racks.update(RACKS)
        await cluster.lead(1, replicas=(1, 2))
        await cluster.produce(1, batch("a"))
        await cluster.produce(1, batch("b"))
        request = fetch_request(offset, max_wait_ms=0 if preferred < 0 else 60_000)
        request.rack_id = rack
        response = await cluster.call(cluster[1], request, version=version)
        row = response.responses[0].partitions[0]
        assert (row.error_code, row.high_watermark, row.preferred_read_replica) == (0, 2, preferred)
        assert bool(row.records) == (preferred < 0)
        if preferred >= 0:
            await until(lambda: cluster.partition(preferred).high_watermark == 2)
            at_the_replica = (await cluster.call(cluster[preferred], request, version=version)).responses[0]
            assert at_the_replica.partitions[0].preferred_read_replica == -1
            assert values(at_the_replica.partitions[0].records) == ["a", "b"][offset:]


async def test_preferred_replica_is_in_sync_and_has_the_offset() -> None:
    async with replica_cluster(replica_fetch_wait_max_ms=60_000) as cluster:
        cluster.racks.update(RACKS)
        await cluster.lead(1)
        await cluster.produce(1, batch("a", "b"))
        partition = cluster.partition(1)
        await until(lambda: all(one.log_end_offset == 2 for one in partition.followers.values()))

        def preferred(offset: int = 1) -> int:
            return preferred_replica(partition, offset, "b", cluster[1].services.metadata)

        second, third = partition.followers[2], partition.followers[3]
        second.log_end_offset = 3
        assert preferred() == 2, "the one that is ahead"
        second.log_end_offset, third.log_end_offset = 2, 3
        assert preferred() == 3
        partition.isr = (1, 2)
        assert preferred() == 2
        second.log_start_offset = 2
        assert preferred() == -1
        second.log_start_offset, second.log_end_offset = 0, 0
        assert preferred() == -1
        assert preferred(0) == 2
        del cluster.racks[2]
        await cluster.publish()
        assert preferred(0) == -1


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
async def test_divergent_last_fetched_epoch_gets_the_diverging_epoch(
    offset: int, last_epoch: int, diverging: tuple[int, int], code: ErrorCode
) -> None:
    """The log: offsets 0 and 1 of epoch 0, offset 2 of epoch 2; epoch 1 was another leader's."""
    async with replica_cluster(1) as cluster:
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


async def test_deleted_offset_is_out_of_range_also_if_its_epoch_diverges() -> None:
    """As in Kafka: where the histories part says nothing about records that are gone."""
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        await cluster.produce(1, batch("a", "b"))
        cluster.assigned["t", 0].leader_epoch = 1
        await cluster.lead(1, replicas=(1,))
        await cluster.produce(1, batch("c"))
        assert (await cluster.fetch(1, 1, last_epoch=1)).diverging_epoch.epoch == 0
        cluster.partition(1).log.increment_log_start_offset(2)
        row = await cluster.fetch(1, 1, last_epoch=1)
        assert (row.error_code, row.diverging_epoch.epoch) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


async def test_fetch_of_unassigned_replica_is_refused() -> None:
    async with replica_cluster(2) as cluster:
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


async def test_failing_waiting_fetch_does_not_fail_the_produce_that_completes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waits for more bytes; when they arrive, its part of the disk is unreadable."""

    def broken(*_: object) -> bytes:
        raise OSError(5, "input/output error")

    async with replica_cluster(0) as cluster:
        broker = await cluster.start(1, FaultyFiles(MemoryFiles()))  # type: ignore[arg-type]
        await cluster.lead(1, replicas=(1,))
        assert (await cluster.produce(1, batch("a"))).error_code == 0
        fetching = asyncio.create_task(cluster.fetch(1, 0, max_wait_ms=60_000, min_bytes=len(batch("a")) + 1))
        await until(lambda: len(broker.replicas.fetches) == 1)
        monkeypatch.setattr("tests.broker.storage.faulty_files.FaultyFile.read", broken)
        assert (await cluster.produce(1, batch("b"))).error_code == 0
        assert (await fetching).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        monkeypatch.undo()
        assert values((await cluster.fetch(1, 0)).records) == ["a", "b"]


async def test_waiting_fetch_at_a_follower_ends_when_its_offset_is_truncated() -> None:
    """The consumer learns of the truncation at once. Here it waits for a record that only the follower has."""
    async with replica_cluster(2) as cluster:
        await cluster.lead(1, replicas=(1, 2))
        await cluster.produce(1, batch("a"))
        await cluster.lead(2, only=(2,))
        assert (await cluster.produce(2, batch("lost"), acks=1)).error_code == 0
        await cluster.lead(1, only=(2,))  # the leader itself does not know yet, so it refuses to be fetched from
        waiting = asyncio.create_task(cluster.fetch(2, 2, max_wait_ms=60_000))
        await until(lambda: len(cluster[2].replicas.fetches) == 1)
        await cluster.tell("t", 0, only=(1,))
        async with asyncio.timeout(20):
            assert (await waiting).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_waiting_fetch_does_not_read_its_records_again_at_each_append(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `min_bytes` of megabytes, each small batch would cost a read of megabytes."""
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        batches = [batch(f"{number}" + "x" * 10_000) for number in range(20)]
        size = sum(map(len, batches))
        fetching = asyncio.create_task(cluster.fetch(1, 0, max_wait_ms=60_000, min_bytes=size))
        await until(lambda: len(cluster[1].replicas.fetches) == 1)
        file = cluster.partition(1).log.segments.active.file
        read, sizes = type(file).read, []

        def counted(of: object, position: int, count: int) -> bytes:
            sizes.append(count)
            return read(of, position, count)  # type: ignore[arg-type]

        monkeypatch.setattr(type(file), "read", counted)
        for one in batches:
            await cluster.produce(1, one)
        assert len((await fetching).records) == size
        assert sum(sizes) < 2 * size


@pytest.mark.parametrize("max_bytes", [0, -1, -(2**31)])
async def test_waiting_fetch_with_small_max_bytes_gets_one_batch(max_bytes: int) -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        fetching = asyncio.create_task(cluster.fetch(1, 0, max_wait_ms=60_000, min_bytes=2, max_bytes=max_bytes))
        await until(lambda: len(cluster[1].replicas.fetches) == 1)
        assert (await cluster.produce(1, batch("a"))).error_code == 0
        assert values((await fetching).records) == ["a"]


async def test_fetch_from_older_segment_does_not_wait_for_more_bytes() -> None:
    """A segment that does not grow can have fewer bytes than `min_bytes`."""
    async with replica_cluster(1) as cluster, asyncio.timeout(20):
        await cluster.lead(1, replicas=(1,))
        assert (await cluster.produce(1, batch("a"))).error_code == 0
        waiting = asyncio.create_task(cluster.fetch(1, 0, max_wait_ms=60_000, min_bytes=100_000))
        await until(lambda: len(cluster[1].replicas.fetches) == 1)
        cluster.partition(1).log.roll(1)
        assert (await cluster.produce(1, batch("b"))).error_code == 0
        assert values((await waiting).records) == ["a"]
        assert values((await cluster.fetch(1, 0, max_wait_ms=60_000, min_bytes=100_000)).records) == ["a"]


@pytest.mark.parametrize("min_bytes", [1, 1000])
async def test_fetch_of_offsets_that_compaction_has_removed_waits_for_a_batch(min_bytes: int) -> None:
    """Up to the offset that it may read there is nothing: a response at once would only repeat the request."""
    async with replica_cluster(1) as cluster, asyncio.timeout(20):
        await cluster.lead(1, replicas=(1,))
        for value in "ab":
            await cluster.produce(1, batch(value))
        log = cluster.partition(1).log
        log.roll(2)
        sealed = next(iter(log.segments))
        sealed.truncate(sealed.position_of(1), 1)
        waiting = asyncio.create_task(cluster.fetch(1, 1, max_wait_ms=60_000, min_bytes=min_bytes))
        await until(lambda: len(cluster[1].replicas.fetches) == 1)
        cluster[1].replicas.fetches.check(cluster.partition(1))
        assert len(cluster[1].replicas.fetches) == 1
        await cluster.produce(1, batch("c"))
        assert values((await waiting).records) == ["c"]


async def test_read_that_max_bytes_cuts_counts_as_full() -> None:
    """Kafka sends a part of the batch that does not fit, so `min_bytes` is reached."""
    size = len(batch("a"))
    limits = {"max_wait_ms": 60_000, "min_bytes": 2 * size - 1, "max_bytes": 2 * size - 1}
    async with replica_cluster(1) as cluster, asyncio.timeout(20):
        await cluster.lead(1, replicas=(1,))
        assert (await cluster.produce(1, batch("a"))).error_code == 0
        waiting = asyncio.create_task(cluster.fetch(1, 0, **limits))
        await until(lambda: len(cluster[1].replicas.fetches) == 1)
        assert (await cluster.produce(1, batch("b"))).error_code == 0
        assert values((await waiting).records) == ["a"]
        assert values((await cluster.fetch(1, 0, **limits)).records) == ["a"]


async def test_min_bytes_above_the_limit_of_the_response_is_the_limit() -> None:
    """As in Kafka: a response cannot have more bytes, so nothing is waited for."""
    size = len(batch("a"))
    async with replica_cluster(1) as cluster, asyncio.timeout(20):
        await cluster.lead(1, replicas=(1,))
        for value in "ab":
            assert (await cluster.produce(1, batch(value))).error_code == 0
        request = fetch_request(0, max_wait_ms=60_000, min_bytes=10 * size)
        request.max_bytes = size
        response = await cluster.call(cluster[1], request)
        assert values(response.responses[0].partitions[0].records) == ["a"]


async def test_batch_that_does_not_fit_behind_others_is_not_waited_for() -> None:
    """As in Kafka: there are as many bytes as asked for, though the response cannot have all of them."""
    size = len(batch("a"))
    async with replica_cluster(1) as cluster, asyncio.timeout(20):
        for topic in ("t", "u"):
            await cluster.lead(1, replicas=(1,), topic=topic)
            assert (await cluster.produce(1, batch("a"), topic=topic)).error_code == 0
        request = fetch_request(0, max_wait_ms=60_000, min_bytes=2 * size - 1)
        request.topics += fetch_request(0, topic="u").topics
        request.max_bytes = 2 * size - 1
        response = await cluster.call(cluster[1], request)
        assert [values(topic.partitions[0].records) for topic in response.responses] == [["a"], []]
