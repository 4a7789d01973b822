"""The built-in ZooKeeper as a process: it needs no Java, and can be killed and started again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from anabranch import Admin, NewTopic, Producer
from anabranch.cluster.built_in_zookeeper import BuiltInZooKeeper
from anabranch.cluster.processes import ProcessCluster
from anabranch.cluster.zookeeper import ZooKeeperUnavailable
from anabranch.cluster.zookeeper_sessions import expire, session_of
from anabranch.controller.zk.kazoo_session import open_kazoo
from anabranch.controller.zk.session import NoNode, SessionEvent
from anabranch.protocol.errors import ErrorCode, KafkaError

pytestmark = pytest.mark.processes


async def test_znodes_survive_a_kill_and_sessions_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.spark_jobs.java.find", lambda: pytest.fail("it needs no Java"))
    async with asyncio.timeout(60), BuiltInZooKeeper(data_dir=tmp_path) as server:
        zk = await open_kazoo(server.hosts)
        await zk.create("/kept", b"1")
        await zk.create("/mine", ephemeral=True)
        over = asyncio.Event()
        zk.on_session(lambda event: over.set() if event is SessionEvent.EXPIRED else None)
        hosts = server.hosts
        await server.kill()
        await server.start()
        assert server.hosts == hosts
        await over.wait()
        other = await open_kazoo(server.hosts)
        assert (await other.get("/kept"))[0] == b"1"
        with pytest.raises(NoNode):
            await other.get("/mine")
        await other.close()
        await zk.close()
    assert list(server.data_directory.iterdir()), "the data of a given directory is kept"


async def test_server_that_cannot_start_is_reported_with_its_output(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where the data directory should be")
    with pytest.raises(ZooKeeperUnavailable, match=r"(?s)ended immediately with code 1.*cannot start"):
        await BuiltInZooKeeper(data_dir=tmp_path).start()


async def test_cluster_survives_the_loss_of_its_zookeeper_and_of_single_sessions() -> None:
    async with (
        asyncio.timeout(100),
        ProcessCluster(2) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
        Producer(cluster.bootstrap_servers) as producer,
    ):
        await admin.create_topics([NewTopic(name="t", partitions=2, replication_factor=2)])
        await producer.send_and_wait("t", b"before", key=b"k")
        async with cluster.without_zookeeper():
            await producer.send_and_wait("t", b"without", key=b"k")
        await resized(admin, "t", 3)
        session = await registered(cluster, 2)
        await expire(cluster.zookeeper, session)
        await cluster.wait_brokers(2)
        assert await registered(cluster, 2, other_than=session) != session
        await admin.wait_for_topic("t", replicas=2)
        await producer.send_and_wait("t", b"after", key=b"k")


async def resized(admin: Admin, topic: str, partitions: int) -> None:
    """Resize a topic, once the controller knows again that both brokers live."""
    while True:
        try:
            await admin.create_partitions(topic, partitions)
        except KafkaError as error:
            assert error.code in (ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.NOT_CONTROLLER), error
        else:
            return


async def registered(cluster: ProcessCluster, node_id: int, other_than: int = 0) -> int:
    """The session of a node, once it is registered by one."""
    zk = await open_kazoo(cluster.zookeeper)
    try:
        changed = asyncio.Event()
        while True:
            changed.clear()
            stat = await zk.exists(f"/brokers/ids/{node_id}", lambda event: changed.set())
            if stat is not None and stat.ephemeral_owner != other_than:
                assert await session_of(cluster.zookeeper, node_id) == stat.ephemeral_owner
                return stat.ephemeral_owner
            await changed.wait()
    finally:
        await zk.close()
