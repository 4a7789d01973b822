"""Several log directories of one broker: described, and moved under load."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from anabranch import Consumer, Producer
from anabranch.broker.handlers.describe_log_dirs import describe_log_dirs
from anabranch.broker.replication import replica_maintenance
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.broker.storage.os_files import OsFiles
from anabranch.broker.tasks.yield_budget import ELEMENTS_PER_YIELD
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.apis.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from anabranch.protocol.apis.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from anabranch.protocol.errors import ErrorCode
from tests.anabranch.cluster.test_in_process import ask, create
from tests.broker.replication.replica_cluster import lead_partitions, replica_cluster
from tests.broker.yields import context, while_it_yields, yields_of

pytestmark = pytest.mark.timeout(60)

MANY = 3 * ELEMENTS_PER_YIELD


def with_directories(*paths: str) -> Cluster:
    cluster = Cluster(1)
    cluster._data.files[1] = {path: MemoryFiles() for path in paths}
    return cluster


async def described(cluster: Cluster, *partitions: int) -> dict[str, DescribeLogDirsResult]:
    topics = [DescribableLogDirTopic(topic="t", partitions=list(partitions))] if partitions else None
    response = await ask(cluster, 1, DescribeLogDirsRequest(topics=topics))
    assert response.error_code == 0
    return {row.log_dir: row for row in response.results}


def rows(result: DescribeLogDirsResult) -> list[tuple[int, bool]]:
    return [(row.partition_index, row.is_future_key) for topic in result.topics for row in topic.partitions]


async def move(cluster: Cluster, path: str, *indices: int, topic: str = "t") -> list[int]:
    directory = AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=list(indices))])
    response = await ask(cluster, 1, AlterReplicaLogDirsRequest(dirs=[directory]))
    return [row.error_code for result in response.results for row in result.partitions]


async def test_log_dirs_are_described_with_replicas_and_disk_space(tmp_path: Path) -> None:
    cluster = Cluster(1)
    cluster._data.files[1] = {str(tmp_path / one): OsFiles(tmp_path / one) for one in ("a", "b")}
    async with cluster:
        assert (await create(cluster, "t", partitions=4, replicas=1)).error_code == 0
        found = await described(cluster)
        assert sorted(index for result in found.values() for index, _ in rows(result)) == [0, 1, 2, 3]
        assert {len(rows(result)) for result in found.values()} == {2}
        assert all(result.total_bytes >= result.usable_bytes > 0 for result in found.values())
        assert sum(len(rows(result)) for result in (await described(cluster, 1, 2, 9)).values()) == 2


async def test_description_of_many_logs_yields_and_one_may_be_deleted_meanwhile() -> None:
    async with replica_cluster(1) as cluster:
        lead_partitions(cluster, range(MANY), 1, 1, [1])
        services = cluster[1].services
        everything = DescribeLogDirsRequest(topics=None)
        response, others = await yields_of(describe_log_dirs(context(services, 4), everything))
        assert [index for index, _ in rows(response.results[0])] == list(range(MANY)) and others >= 2
        response = await while_it_yields(
            describe_log_dirs(context(services, 4), everything),
            lambda: services.replicas.stop_replica("t", MANY - 1, -2, delete=True),
            after=1,
        )
        (topic,) = response.results[0].topics
        assert [row.partition_index for row in topic.partitions[-2:]] == [MANY - 2, MANY - 1]
        assert (topic.partitions[-1].partition_size, topic.partitions[-1].offset_lag) == (0, -1)


async def test_directories_in_memory_have_the_size_of_memory() -> None:
    async with Cluster(1) as cluster:
        found = await described(cluster)
        assert all(result.total_bytes >= result.usable_bytes > 0 for result in found.values())


async def test_replica_moves_between_directories_during_produce_and_fetch() -> None:
    async with with_directories("/a", "/b") as cluster:
        assert (await create(cluster, "t", replicas=1)).error_code == 0
        (home,) = [path for path, result in (await described(cluster)).items() if rows(result)]
        target = "/b" if home == "/a" else "/a"
        servers = cluster.bootstrap_servers
        async with (
            Producer(servers) as producer,
            Consumer("t", bootstrap_servers=servers, auto_offset_reset="earliest") as consumer,
        ):
            for number in range(300):
                if number == 100:
                    assert await move(cluster, target, 0) == [0]
                await producer.send_and_wait("t", b"%d" % number)
            got = [(await consumer.getone()).value for _ in range(300)]
        assert got == [b"%d" % number for number in range(300)]
        while rows((await described(cluster))[home]):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        row = (await described(cluster))[target].topics[0].partitions[0]
        assert (row.is_future_key, row.offset_lag, row.partition_size > 300) == (False, 0, True)


async def test_move_continues_after_a_restart_and_ends_with_topic_deletion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_maintenance, "MOVE_INTERVAL_MS", 3_600_000)
    async with with_directories("/a", "/b") as cluster:
        assert (await create(cluster, "t", replicas=1)).error_code == 0
        async with Producer(cluster.bootstrap_servers) as producer:
            for number in range(20):
                await producer.send_and_wait("t", b"%d" % number)
        replicas = cluster.nodes[1].services.replicas
        (home,) = [path for path, result in (await described(cluster)).items() if rows(result)]
        target = "/b" if home == "/a" else "/a"
        assert await move(cluster, target, 0) == [0]
        assert rows((await described(cluster))[target]) == [(0, True)]
        assert (await described(cluster))[target].topics[0].partitions[0].offset_lag == 20
        assert len(replicas.moves) == 1, "the first piece is copied after a pause"
        await cluster.stop_broker(1)
        monkeypatch.undo()
        await cluster.start_broker(1)
        while (await described(cluster))[target].topics == []:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        while rows((await described(cluster))[target]) != [(0, False)]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert rows((await described(cluster))[home]) == []


async def test_invalid_move_is_refused() -> None:
    async with with_directories("/a", "/b") as cluster:
        assert (await create(cluster, "t", partitions=2, replicas=1)).error_code == 0
        assert await move(cluster, "/c", 0, 1) == [ErrorCode.LOG_DIR_NOT_FOUND] * 2
        assert await move(cluster, "/a", 0, topic="t" * 220) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
        for path in ("/a", "/b"):
            assert await move(cluster, path, 0, 1, topic="later") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
        assert (await create(cluster, "later", partitions=2, replicas=1)).error_code == 0
        found = await described(cluster)
        assert [topic.name for topic in found["/b"].topics if topic.name == "later"] == ["later"]
        assert [topic.name for topic in found["/a"].topics if topic.name == "later"] == []
