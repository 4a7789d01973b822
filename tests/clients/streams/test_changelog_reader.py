"""The end of a changelog is never that of a leader that was replaced and does not know it. Method: a simulated
cluster.
"""

from __future__ import annotations

import random

from anabranch import Admin, NewTopic, Producer
from anabranch.clients.config import NetworkConfig, parse_servers
from anabranch.clients.streams.changelog_reader import ChangelogReader
from anabranch.protocol.topic_partition import TopicPartition
from tests.sim.cluster import SimCluster
from tests.sim.loop import Process

PLACE = TopicPartition("t", 0)
DEPOSED = 1


async def ends_while_deposed(cluster: SimCluster) -> set[int]:
    """Return the ends that are found after the successor of a leader that has lost ZooKeeper stored a record."""
    await cluster.start()
    return await cluster.loop.spawn(Process("client"), _find_ends(cluster))


async def _find_ends(cluster: SimCluster) -> set[int]:
    async with (
        Admin(cluster.bootstrap, request_timeout_ms=2000, rng=cluster.rng("admin")) as admin,
        Producer(cluster.bootstrap, request_timeout_ms=300, rng=cluster.rng("producer")) as producer,
    ):
        await admin.create_topics([NewTopic(name="t", assignments={0: [DEPOSED, 2, 3]})])
        await admin.wait_for_topic("t", replicas=3)
        network = NetworkConfig(bootstrap_servers=parse_servers(cluster.bootstrap), client_id="reader")
        reader = ChangelogReader(network, random.Random(1), lambda: None, admin.network)
        await reader.start()
        try:
            await producer.send_and_wait("t", b"first", partition=0)
            host = cluster.machines[DEPOSED].host
            cluster.zookeeper.cut(host)
            assert await cluster.until(lambda: cluster.leader(*PLACE) != DEPOSED, 20, "another one leads")
            await producer.send_and_wait("t", b"second", partition=0)
            replica = cluster.replica(DEPOSED, *PLACE)
            assert replica is not None and replica.leader_id == DEPOSED, "it knows"
            found = [await reader.bounds([PLACE]) for _ in range(30)]
            cluster.zookeeper.mend(host)
        finally:
            await reader.stop()
    return {one[PLACE].end for one in found if one}


def test_leader_that_was_replaced_and_does_not_know_it_is_not_asked() -> None:
    cluster = SimCluster("deposed", brokers=3, spares=0)
    assert cluster.loop.run(ends_while_deposed(cluster)) == {2}
    assert cluster.history.failures == []
