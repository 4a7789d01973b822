"""A compacted topic may grow: each partition keeps its last value of a key, and readers get the newest last (R15).

No tombstone is sent to the old partition (the text's section 9): it would have no order beside the values in the new
one (K704). What stays there is one old value of each key that moved, and whoever reads has it before the newer ones.
"""

from __future__ import annotations

import pytest

from anabranch import Admin, Consumer, NewTopic, Producer
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.errors import ErrorCode, KafkaError

pytestmark = pytest.mark.timeout(60)


TOPIC = "compacted"
KEYS = 20
ROUNDS = 6
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "2000", "min.cleanable.dirty.ratio": "0"}


async def write(producer: Producer, rounds: range) -> None:
    for number in rounds:
        for key in range(KEYS):
            await producer.send(TOPIC, b"%d" % number, b"key-%d" % key)
        await producer.flush()


async def read_all(cluster: Cluster, group: str) -> list[tuple[bytes, int]]:
    """(key, value) of everything there is, as a group from the beginning gets it."""
    seen: list[tuple[bytes, int]] = []
    newest: dict[bytes, int] = {}
    async with Consumer(
        TOPIC, bootstrap_servers=cluster.bootstrap_servers, group_id=group, auto_offset_reset="earliest"
    ) as consumer:
        while len(newest) < KEYS or min(newest.values()) < 2 * ROUNDS - 1:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                seen += [(record.key or b"", int(record.value or b"-1")) for record in records]
            newest.update(seen)
    return seen


async def test_r15_latest_value_comes_last_after_growth_of_a_compacted_topic() -> None:
    properties = {"log.cleaner.backoff.ms": "20"}
    async with Cluster(1, properties=properties) as cluster, Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name=TOPIC, partitions=1, configs=COMPACTED)])
        async with Producer(cluster.bootstrap_servers) as producer:
            await write(producer, range(ROUNDS))
            await admin.create_partitions(TOPIC, 2)
            await write(producer, range(ROUNDS, 2 * ROUNDS))
        written = 2 * ROUNDS * KEYS
        for attempt in range(100):
            seen = await read_all(cluster, f"readers-{attempt}")
            if len(seen) < written * 2 / 3:
                break
        assert len(seen) < written * 2 / 3, "nothing was compacted"
        for key in {key for key, _ in seen}:
            values = [value for one, value in seen if one == key]
            assert values == sorted(values), f"{key!r} came as {values}"
        try:
            await admin.create_partitions(TOPIC, 1, allow_shrink=True)
        except KafkaError as refused:
            assert refused.code == ErrorCode.INVALID_PARTITIONS and "cleanup.policy=compact" in refused.message
        else:
            raise AssertionError("a compacted partition would never be empty")


async def test_compacted_topic_with_delete_policy_can_shrink() -> None:
    async with Cluster(1) as cluster, Admin(cluster.bootstrap_servers) as admin:
        configs = {**COMPACTED, "cleanup.policy": "compact,delete"}
        await admin.create_topics([NewTopic(name=TOPIC, partitions=2, configs=configs)])
        await admin.create_partitions(TOPIC, 1, allow_shrink=True)
        assert (await admin.describe_topic(TOPIC)).live == (0,)


async def test_topic_with_the_brokers_compact_policy_does_not_shrink() -> None:
    properties = {"log.cleanup.policy": "compact"}
    async with Cluster(1, properties=properties) as cluster, Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name=TOPIC, partitions=2)])
        with pytest.raises(KafkaError, match=r"cleanup\.policy=compact: its partitions would never be empty"):
            await admin.create_partitions(TOPIC, 1, allow_shrink=True)
