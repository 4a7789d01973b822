"""UpdateMetadata: replicas that were moved away."""

from __future__ import annotations

import pytest

from anabranch.protocol.errors import ErrorCode
from tests.broker.replication.replica_cluster import Assigned, batch, replica_cluster


async def test_full_update_deletes_replicas_that_were_moved_away() -> None:
    """The controller that completed a reassignment died before its StopReplica: else the old leader would lead on."""
    async with replica_cluster(2) as cluster:
        for topic in ("t", "stays"):
            await cluster.lead(1, replicas=(1, 2), topic=topic)
        await cluster.lead(2, replicas=(2,), isr=(2,), only=(2,))
        assert (await cluster.produce(1, batch("lost"), acks=1)).error_code == ErrorCode.NONE
        await cluster.publish()
        assert (await cluster.produce(1, batch("safe"), acks=1)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not cluster[1].files.exists("t-0") and cluster[2].files.exists("t-0")
        assert cluster.partition(1, "stays").is_leader


async def test_full_update_deletes_replicas_of_merged_partitions_that_were_removed() -> None:
    """Their removal does not wait for a broker whose session has expired, perhaps before they were sealed."""
    expected = {"sealed": False, "missed": False, "planned": True, "used": True}
    async with replica_cluster(1) as cluster:
        for topic in expected:
            generation = {"missed": 0, "planned": 2}.get(topic, 1)
            gen_start = tuple((number, number) for number in range(generation + 1))
            state = Assigned((1,), 1, generation, (1,), generation=generation, gen_start=gen_start)
            state.sealed = topic == "sealed"
            await cluster.assign(topic, 1, state)
            cluster.assigned[topic, 0] = Assigned((1,), 1, 0, (1,))
            count = 2 if topic == "used" else 1
            cluster.published[topic] = {"generation": 1, "undeleted_partition_count": count}
            del cluster.assigned[topic, 1]
        await cluster.publish()
        assert {topic: cluster[1].files.exists(f"{topic}-1") for topic in expected} == expected
        assert cluster[1].replicas.replica("sealed", 1) is None


@pytest.mark.parametrize("why", ["same epoch", "another topic"])
async def test_full_update_deletes_no_replica_of_a_later_state_or_topic(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replica_cluster(2) as cluster:
        await cluster.lead(1, replicas=(1, 2))
        await cluster.lead(2, replicas=(2,), isr=(2,), only=(2,))
        if why == "same epoch":
            cluster.assigned["t", 0].leader_epoch = 0
        else:
            monkeypatch.setattr(
                "tests.broker.replication.replica_cluster.topic_id_of", lambda topic: b"another".ljust(16)
            )
        await cluster.publish()
        assert cluster.partition(1).is_leader
