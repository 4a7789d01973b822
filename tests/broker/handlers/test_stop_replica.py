"""StopReplica: fenced by epochs, deletes only when asked."""

from __future__ import annotations

from protocol.apis.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from protocol.errors import ErrorCode
from tests.broker.replication.replica_cluster import ReplicaCluster, batch, run


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
