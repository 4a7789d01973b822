"""OffsetCommit and OffsetFetch v0, and the znodes behind them."""

from __future__ import annotations

import pytest

from anabranch.controller.zk.session import ConnectionLoss
from anabranch.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from anabranch.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from anabranch.protocol.errors import ErrorCode
from tests.broker.replication.replica_cluster import ReplicaCluster, replica_cluster


async def commit(cluster: ReplicaCluster, offset: int, index: int = 0, group: str = "g", metadata: str = "") -> int:
    partition = OffsetCommitRequestPartition(
        partition_index=index, committed_offset=offset, committed_metadata=metadata
    )
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])])
    response = await cluster.call(cluster[1], request, version=0)
    code: int = response.topics[0].partitions[0].error_code
    return code


async def fetch(cluster: ReplicaCluster, index: int = 0, group: str = "g") -> tuple[int, int, str]:
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[index])]
    response = await cluster.call(cluster[1], OffsetFetchRequest(group_id=group, topics=topics), version=0)
    row = response.topics[0].partitions[0]
    return row.error_code, row.committed_offset, row.metadata


async def test_version_0_commits_are_stored_as_znodes() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        assert await fetch(cluster) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, "")
        for offset in (7, 5):
            assert await commit(cluster, offset, metadata="is forgotten") == ErrorCode.NONE
            assert await fetch(cluster) == (ErrorCode.NONE, offset, "")
        data, _ = await cluster.session.get("/consumers/g/offsets/t/0")
        assert data == b"5"
        assert await fetch(cluster, group="another") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, "")


async def test_invalid_commit_is_refused() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        assert await commit(cluster, 1, index=9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await fetch(cluster, index=9))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await commit(cluster, 1, metadata="x" * 4096) == ErrorCode.NONE
        assert await commit(cluster, 1, metadata="x" * 4097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert await commit(cluster, 1, metadata="\N{GRINNING FACE}" * 2049) == ErrorCode.OFFSET_METADATA_TOO_LARGE


@pytest.mark.parametrize("group", ["", "a//b", "..", "a/../../brokers", "a/.", "nul\0"])
async def test_group_name_with_path_traversal_is_refused(group: str) -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        assert await commit(cluster, 1, group=group) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert await fetch(cluster, group=group) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1, "")
        assert await cluster.session.exists("/consumers") is None


async def test_malformed_offset_znode_is_an_error() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        await cluster.session.create("/consumers/g/offsets/t/0", b"seven", make_parents=True)
        assert await fetch(cluster) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1, "")


async def test_lost_zookeeper_connection_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))

        async def lost(*_: object) -> None:
            raise ConnectionLoss

        monkeypatch.setattr(type(cluster[1].services.session), "set", lost)
        monkeypatch.setattr(type(cluster[1].services.session), "get", lost)
        assert await commit(cluster, 1) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert await fetch(cluster) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1, "")
