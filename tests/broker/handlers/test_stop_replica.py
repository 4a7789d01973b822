"""StopReplica: fenced by epochs, deletes only on request."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from anabranch.protocol.apis.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from anabranch.protocol.errors import ErrorCode
from tests.broker.replication.replica_cluster import batch, replica_cluster


async def test_stop_replica_stops_serving_and_deletes_on_request() -> None:
    async with replica_cluster(2) as cluster:
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


async def test_log_that_cannot_be_deleted_is_reported_and_deleted_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller's queue to the broker must not stand still; it repeats the deletion."""
    async with replica_cluster(1) as cluster:
        for topic in ("t", "u"):
            await cluster.lead(1, replicas=(1,), topic=topic)

        def stop(*topics: str) -> StopReplicaRequest:
            row = StopReplicaPartitionState(partition_index=0, leader_epoch=-2, delete_partition=True)
            states = [StopReplicaTopicState(topic_name=topic, partition_states=[row]) for topic in topics]
            return StopReplicaRequest(controller_id=9, controller_epoch=1, topic_states=states)

        rename = cluster[1].files.rename

        def refused(source: str, target: str) -> None:
            if source == "t-0":
                raise OSError(errno.ENOSPC, "no space left on device")
            rename(source, target)

        with monkeypatch.context() as full:
            full.setattr(cluster[1].files, "rename", refused)
            for _ in range(2):
                answer = await cluster.call(cluster[1], stop("t", "u"))
                codes = [row.error_code for row in answer.partition_errors]
                assert codes == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
        assert (cluster[1].files.exists("t-0"), cluster[1].files.exists("u-0")) == (True, False)
        assert (await cluster.call(cluster[1], stop("t"))).partition_errors[0].error_code == ErrorCode.NONE
        assert not cluster[1].files.exists("t-0")


async def test_deletion_waits_for_an_earlier_leader_and_isr_request() -> None:
    """The order waits for ZooKeeper; its connection is lost, and the controller continues on another one."""
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        configs = cluster[1].services.topic_configs
        load, arrived, answer = configs.load, asyncio.Event(), asyncio.Event()

        async def slowly(topic: str, **options: Any) -> Any:
            arrived.set()
            await answer.wait()
            return await load(topic, **options)

        configs.load = slowly  # type: ignore[method-assign]
        order = asyncio.create_task(cluster.call(cluster[1], cluster.leader_and_isr("t", 0)))
        await arrived.wait()
        row = StopReplicaPartitionState(partition_index=0, leader_epoch=-2, delete_partition=True)
        topic = StopReplicaTopicState(topic_name="t", partition_states=[row])
        request = StopReplicaRequest(controller_id=9, controller_epoch=1, topic_states=[topic])
        deletion = asyncio.create_task(cluster.call(cluster[1], request))
        done, _ = await asyncio.wait([deletion], timeout=0.1)
        assert not done, "it has to wait its turn"
        answer.set()
        await asyncio.gather(order, deletion)
        assert cluster[1].replicas.replica("t", 0) is None
        assert not cluster[1].files.exists("t-0")
