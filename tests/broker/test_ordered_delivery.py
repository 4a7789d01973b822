"""`enable.ordered.delivery` changed at run time: gates may change, key placement may not (K110)."""

from __future__ import annotations

import asyncio

import pytest

from anabranch import Admin, Consumer, NewTopic, Producer
from anabranch.broker.administration.config_alterations import SET, TOPIC
from anabranch.clients.metadata import Topic
from anabranch.cluster.in_process import Cluster
from anabranch.controller.zk import paths, znodes
from anabranch.protocol.errors import ErrorCode
from tests.broker.handlers.test_alter_configs import alter, one, resource

pytestmark = pytest.mark.timeout(60)


async def switch(cluster: Cluster, topic: str, *, ordered: bool) -> int:
    text = "true" if ordered else "false"
    (code,) = await alter(cluster, resource(TOPIC, topic, one("enable.ordered.delivery", text, SET)))
    return code


async def shown(admin: Admin, name: str, *, gated: bool) -> Topic:
    while (topic := await admin.describe_topic(name)).gated is not gated:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    return topic


async def test_resized_topic_keeps_its_key_placement_without_ordered_delivery() -> None:
    async with Cluster(1) as cluster, Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name="t", partitions=2)])
        await admin.wait_for_topic("t")
        keys = [b"%d" % number for number in range(40)]
        async with Producer(cluster.bootstrap_servers) as producer:
            await asyncio.gather(*[producer.send_and_wait("t", b"1", key=key) for key in keys])
            await admin.create_partitions("t", 3)
            before = {key: (await producer.send_and_wait("t", b"2", key=key)).partition for key in keys}
            assert await switch(cluster, "t", ordered=False) == 0
            topic = await shown(admin, "t", gated=False)
            assert topic.ordered and topic.generation == 1
        async with Producer(cluster.bootstrap_servers) as later:
            after = {key: (await later.send_and_wait("t", b"3", key=key)).partition for key in keys}
            assert after == before, "a key stays where its records are"
            await admin.create_partitions("t", 4)
            assert (await admin.describe_topic("t")).generation == 2, "and goes on to be resized in generations"
        servers = cluster.bootstrap_servers
        async with Consumer("t", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest") as reader:
            got = [await reader.getone() for _ in range(120)]
            assert len(got) == 120
            assert reader._gatekeeper._gates.gate("t") is None, "nobody waits"
            assert await switch(cluster, "t", ordered=True) == 0
            await shown(admin, "t", gated=True)
            await reader._network.refresh()
            assert reader._gatekeeper._gates.gate("t") is not None


async def test_topic_grown_without_ordered_delivery_cannot_enable_it() -> None:
    async with Cluster(1) as cluster, Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name="t", partitions=2, configs={"enable.ordered.delivery": "false"})])
        await admin.wait_for_topic("t")
        assert await switch(cluster, "t", ordered=True) == 0, "nothing has moved yet"
        assert (await shown(admin, "t", gated=True)).ordered
        assert await switch(cluster, "t", ordered=False) == 0
        assert not (await shown(admin, "t", gated=False)).ordered
        await admin.create_partitions("t", 3)
        assert await switch(cluster, "t", ordered=True) == ErrorCode.INVALID_CONFIG
        assert await switch(cluster, "t", ordered=False) == 0
        # A tool that writes znodes asks nobody; it has no more success.
        changes = {"enable.ordered.delivery": "true", "min.insync.replicas": "2"}
        await cluster.nodes[1].session.set(paths.topic_config("t"), znodes.encode_config(changes))
        while (topic := await admin.describe_topic("t")).min_insync_replicas != 2:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        assert (topic.ordered, len(topic.live)) == (False, 3)
