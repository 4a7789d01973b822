"""Tests that fail on purpose, for `tests/test_exchanges.py`."""

from __future__ import annotations

import pytest

from anabranch import Admin, Cluster, Consumer, NewTopic, Producer


@pytest.mark.parametrize("number", range(2))
async def test_that_fails(number: int) -> None:
    async with Cluster(1) as cluster:
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic(name=name, partitions=1) for name in ("wanted", "oth" + "er")])
        async with Producer(cluster.bootstrap_servers, client_id=f"producer-{number}") as producer:
            for topic in ("wanted", "oth" + "er"):
                await producer.send_and_wait(topic, b"secret")
        consumer = Consumer(
            "wanted", bootstrap_servers=cluster.bootstrap_servers, group_id="billing", auto_offset_reset="earliest"
        )
        async with consumer:
            assert (await anext(consumer)).value == b"secret"
            await consumer.commit()
            assert number == -1, "planted"


async def test_that_passes() -> None:
    async with Cluster(1) as cluster, Admin(cluster.bootstrap_servers) as admin:
        assert await admin.list_topics() == []
