"""A partition's end is its leader's, also for a broker without a replica; a deleted one has none."""

from __future__ import annotations

from anabranch import Admin, NewTopic, Producer
from tests.broker.coordinators.share_partitions.sharing import sharing, until


async def test_log_end_is_the_leaders_and_unknown_without_a_leader() -> None:
    async with sharing(2) as cluster, Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name="alone", partitions=1, replication_factor=1)])
        await admin.wait_for_topic("alone")
        async with Producer(cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("alone", b"x")
        (leader,) = [one for one, node in cluster.nodes.items() if node.services.replicas.replica("alone", 0)]
        other = cluster.nodes[next(one for one in cluster.nodes if one != leader)].services
        ends = other.shares.ends
        assert await ends.end("alone", 0) == 1
        assert await cluster.nodes[leader].services.shares.ends.end("alone", 0) == 1
        assert await ends.end("alone", 7) is await ends.end("nowhere", 0) is None
        await cluster.crash_broker(leader)
        await until(lambda: other.metadata.broker(leader) is None)
        assert await ends.end("alone", 0) is None
