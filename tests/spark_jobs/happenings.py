"""Events of topics during reads: transactions, resizes, expiry, deletion."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anabranch import Admin, Producer
from anabranch.clients.metadata import ClusterMetadata
from tests.spark_jobs.live import LiveCluster


def begin_transaction(live: LiveCluster, topic: str, records: Sequence[tuple[int, bytes, bytes]]) -> Callable[[], None]:
    """Store (partition, key, value) in a transaction that stays open; what is returned aborts it."""
    producer = Producer(bootstrap_servers=live.servers, transactional_id=f"of-{topic}")

    async def begin() -> None:
        await producer.start()
        await producer.begin_transaction()
        for index, key, value in records:
            await producer.send(topic, key=key, value=value, partition=index)
        await producer.flush()

    async def abort() -> None:
        await producer.abort_transaction()
        await producer.stop()

    live.run(begin())
    return lambda: live.run(abort())


def expire(live: LiveCluster, topic: str, index: int, offset: int) -> None:
    """Retention has taken everything before an offset."""
    log = live.cluster.nodes[live.leader(topic, index)].services.replicas.partition(topic, index).log

    async def take() -> None:
        log.increment_log_start_offset(offset)

    live.run(take())


def resize(live: LiveCluster, topic: str, partitions: int) -> None:
    """Up or down, until the cluster shows it."""

    async def change() -> None:
        async with Admin(bootstrap_servers=live.servers) as admin:
            generation = (await admin.describe_topic(topic)).generation
            await admin.create_partitions(topic, partitions, allow_shrink=True)
            await admin.wait_for_generation(topic, generation + 1)

    live.run(change())


def wait_for(live: LiveCluster, topic: str, condition: Callable[[ClusterMetadata], bool]) -> None:
    """Until the cluster's metadata is so."""

    async def wait() -> None:
        async with Admin(bootstrap_servers=live.servers) as admin:
            await admin.wait_until(condition, topic)

    live.run(wait())


def delete(live: LiveCluster, topic: str) -> None:
    """Delete a topic, until no broker knows it."""

    async def drop() -> None:
        async with Admin(bootstrap_servers=live.servers) as admin:
            await admin.delete_topics([topic])
            await admin.wait_until(lambda found: topic not in found.topics, topic)

    live.run(drop())
