"""LeaderAndIsr: fencing, and topics with a reused name."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.controller.zk import paths, znodes
from anabranch.controller.zk.session import NoNode
from anabranch.protocol.errors import ErrorCode
from tests.broker.replication.replica_cluster import Assigned, replica_cluster


async def test_stale_controller_and_broker_epochs_are_refused() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        assert await cluster.tell("t", 0) == {1: ErrorCode.STALE_CONTROLLER_EPOCH}
        request = cluster.leader_and_isr("t", 0)
        request.controller_epoch = 0
        assert (await cluster.call(cluster[1], request)).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        request.controller_epoch, request.broker_epoch = 1, cluster[1].epoch - 1
        assert (await cluster.call(cluster[1], request)).error_code == ErrorCode.STALE_BROKER_EPOCH


async def test_log_with_another_topic_id_is_refused() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        await cluster.restart(1)
        files = cluster[1].files
        metadata = files.read_file("t-0/partition.metadata")
        assert metadata is not None
        files.write_file("t-0/partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
        assert await cluster.tell("t", 0) == {1: ErrorCode.INCONSISTENT_TOPIC_ID}
        files.write_file("t-0/partition.metadata", metadata)
        assert await cluster.tell("t", 0) == {1: ErrorCode.NONE}


async def test_configuration_of_earlier_topic_with_same_name_is_not_used() -> None:
    """A request of a deposed controller arrives when the earlier topic is deleted, and the next one not yet created."""
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,), topic="other")
        cluster.assigned["t", 0] = Assigned((1,), 1, 0, (1,))
        late = cluster.leader_and_isr("t", 0)
        late.controller_epoch = 0
        assert (await cluster.call(cluster[1], late)).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        config = znodes.encode_config({"cleanup.policy": "compact"})
        await cluster.session.create(paths.topic_config("t"), config, make_parents=True)
        assert await cluster.tell("t", 0) == {1: ErrorCode.NONE}
        assert cluster.partition(1).log.settings.cleanup_policy == "compact"


async def test_configuration_of_a_new_topic_is_read_from_a_server_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker's ZooKeeper server lags behind the one that the controller has read the topic from."""
    async with replica_cluster(1) as cluster:
        path, session = paths.topic_config("t"), cluster.session
        await session.create(path, znodes.encode_config({"cleanup.policy": "compact"}), make_parents=True)
        get, synced = session.get, asyncio.Event()

        async def get_late(name: str) -> object:
            if name == path and not synced.is_set():
                raise NoNode(name)
            return await get(name)

        async def sync() -> None:
            synced.set()

        monkeypatch.setattr(session, "get", get_late)
        monkeypatch.setattr(session, "sync", sync)
        await cluster.lead(1, replicas=(1,))
        assert cluster.partition(1).log.settings.cleanup_policy == "compact"
        synced.clear()
        await cluster.lead(1, replicas=(1,))
        assert not synced.is_set(), "known topics need no sync"
