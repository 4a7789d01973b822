"""A snapshot has the whole state of a cluster, also as a file; it is restored or started from."""

from __future__ import annotations

import asyncio
import io
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from anabranch import Admin, Cluster, Consumer, NewTopic, Producer
from anabranch.state.snapshot import ABOUT, InvalidSnapshot, NotInMemory, Snapshot
from tests.broker.serving import until

pytestmark = pytest.mark.timeout(120)


async def write(servers: str, values: Sequence[bytes]) -> None:
    async with Producer(servers) as producer:
        for value in values:
            await producer.send_and_wait("orders", value)


async def commit(servers: str) -> list[bytes]:
    """What one member of a group reads until the end, and commits."""
    settings = {"bootstrap_servers": servers, "group_id": "billing", "auto_offset_reset": "earliest"}
    async with Consumer("orders", **settings) as consumer:
        got = [(await anext(consumer)).value]
        await consumer.commit()
        return got


async def test_cluster_is_restored_and_reset() -> None:
    async with Cluster(3) as cluster:
        servers = cluster.bootstrap_servers
        async with Admin(servers) as admin:
            await admin.create_topics([NewTopic(name="orders", partitions=1)])
            await admin.wait_for_topic("orders", replicas=3)
            cluster_id = (await admin.describe_cluster()).cluster_id
        await write(servers, [b"a", b"b"])
        assert await commit(servers) == [b"a"]
        await cluster.crash_broker(3)
        held = cluster.snapshot()
        await cluster.start_broker(3)
        await write(servers, [b"c"])
        assert await commit(servers) == [b"b"]

        await cluster.restore(held)
        assert (cluster.bootstrap_servers, sorted(cluster.nodes)) == (servers, [1, 2])
        await cluster.start_broker(3)
        assert await commit(servers) == [b"b"], "the group is where it was"
        await write(servers, [b"other"])
        assert await commit(servers) == [b"other"], "and what was written later is gone"

        await cluster.reset()
        assert (cluster.bootstrap_servers, sorted(cluster.nodes)) == (servers, [1, 2, 3])
        async with Admin(servers) as admin:
            assert await admin.list_topics() == []
            assert (await admin.describe_cluster()).cluster_id == cluster_id, "to its clients it is the same cluster"

        copy = Snapshot.from_bytes(held.to_bytes())
        assert copy == held
        async with cluster.fork(copy) as other:
            assert sorted(other.nodes) == [1, 2, 3] and other.bootstrap_servers != servers
            assert await commit(other.bootstrap_servers) == [b"b"]


async def test_broker_properties_of_restart_are_reset() -> None:
    async with Cluster(1, properties={"num.partitions": "2"}) as cluster:
        await cluster.crash_broker(1)
        await cluster.start_broker(1, {"num.partitions": "7"})
        await cluster.reset()
        assert cluster.nodes[1].settings.num_partitions == 2


async def test_cluster_on_disk_has_no_snapshots(tmp_path: Path) -> None:
    async with Cluster(1, data_dir=tmp_path) as cluster:
        for attempt in (cluster.reset(), cluster.restore(Snapshot("", {1: {}}, frozenset({1})))):
            with pytest.raises(
                NotInMemory,
                match="this cluster keeps its data in a directory: stop it, and use copies of the directory",
            ):
                await attempt
        with pytest.raises(NotInMemory):
            cluster.snapshot()
        assert list(cluster.nodes) == [1]


async def test_snapshot_file_is_a_zipped_data_directory(tmp_path: Path) -> None:
    async with Cluster(1) as cluster:
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic(name="orders", partitions=1)])
        await write(cluster.bootstrap_servers, [b"a"])
        held = cluster.snapshot()
    with zipfile.ZipFile(io.BytesIO(held.to_bytes())) as archive:
        archive.extractall(tmp_path)
    async with Cluster(1, data_dir=tmp_path) as cluster:
        assert await commit(cluster.bootstrap_servers) == [b"a"]


async def test_snapshot_of_other_brokers_is_refused() -> None:
    other = Snapshot("", {1: {}, 2: {}}, frozenset({1, 2}))
    async with Cluster(1) as cluster:
        with pytest.raises(InvalidSnapshot, match=r"has brokers \(1, 2\); this cluster has \(1,\)"):
            await cluster.restore(other)
        assert list(cluster.nodes) == [1]


@pytest.mark.parametrize("about", [None, {}, {"form": 1}, {"form": 2}])
def test_invalid_snapshot_file_is_refused(about: dict[str, int] | None) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        if about is not None:
            archive.writestr(ABOUT, json.dumps(about))
    with pytest.raises(
        InvalidSnapshot, match="this version reads format 1" if about == {"form": 2} else "not a snapshot"
    ):
        Snapshot.from_bytes(content.getvalue())
    with pytest.raises(InvalidSnapshot, match="not a snapshot: File is not a zip file"):
        Snapshot.from_bytes(b"x")


@pytest.mark.parametrize(
    "journal",
    [
        "{\n",
        "[]\n",
        "[1]\n",
        '"x"\n',
        '["1", "/"]\n',
        '[1, "/", null, 1, 1, 1, 1]\n',
        '[1, "/", "", 1, 1, "0", 1]\n',
        '[1, 7, "", 1, 1, 0, 1]\n',
        '[1, "/a/b", "", 1, 1, 0, 1]\n',
        '[1, "/", "\\ud800", 1, 1, 0, 1]\n',
        "[" * 100_000 + "\n",
    ],
    ids=lambda one: one[:30],
)
async def test_restore_with_malformed_journal_is_refused_and_stops_no_broker(journal: str) -> None:
    async with Cluster(1) as cluster:
        node = cluster.nodes[1]
        with pytest.raises(InvalidSnapshot, match=r"zookeeper\.journal"):
            await cluster.restore(Snapshot(journal, {1: {}}, frozenset({1})))
        assert cluster.nodes == {1: node}
        content = io.BytesIO(Snapshot(journal, {1: {}}, frozenset({1})).to_bytes()).getvalue()
        with pytest.raises(InvalidSnapshot, match=r"zookeeper\.journal"):
            Snapshot.from_bytes(content)


@pytest.mark.parametrize(
    "about",
    [
        {"form": 1, "nodes": [1], "running": [2], "lead_ms": 0},
        {"form": 1, "nodes": [1], "running": [[]], "lead_ms": 0},
        {"form": 1, "nodes": 1, "running": [], "lead_ms": 0},
        {"form": 1, "nodes": [1], "running": [], "lead_ms": 1e300},
        {"form": 1, "nodes": [1], "running": [], "lead_ms": float("inf")},
        {"form": 1, "nodes": ["x"], "running": [], "lead_ms": 0},
    ],
    ids=repr,
)
def test_inconsistent_snapshot_is_refused(about: dict[str, object]) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(ABOUT, json.dumps(about))
        archive.writestr("zookeeper.journal", "")
    with pytest.raises(InvalidSnapshot, match="not a snapshot"):
        Snapshot.from_bytes(content.getvalue())


async def test_failed_restore_brings_old_state_back() -> None:
    async with Cluster(2) as cluster:
        servers = cluster.bootstrap_servers
        async with Admin(servers) as admin:
            await admin.create_topics([NewTopic(name="orders", partitions=1)])
        await write(servers, [b"a"])
        held = cluster.snapshot()
        row = json.dumps([10**6, "/cluster/id", "no JSON", 1, 1, 0, 1]) + "\n"
        broken = Snapshot(held.zookeeper + row, held.files, held.running)
        with pytest.raises(InvalidSnapshot, match="do not start with this snapshot"):
            await cluster.restore(broken)
        assert sorted(cluster.nodes) == [1, 2]
        assert await commit(servers) == [b"a"]


async def test_cancelled_restore_brings_old_state_back() -> None:
    async with Cluster(2) as cluster:
        servers = cluster.bootstrap_servers
        async with Admin(servers) as admin:
            await admin.create_topics([NewTopic(name="orders", partitions=1)])
        held = cluster.snapshot()
        await write(servers, [b"a"])
        old = cluster.nodes[1]
        restoring = asyncio.create_task(cluster.restore(held))
        await until(lambda: cluster.nodes.get(1) is not old)
        restoring.cancel()
        with pytest.raises(asyncio.CancelledError):
            await restoring
        assert sorted(cluster.nodes) == [1, 2]
        assert await commit(servers) == [b"a"]
