"""A proxy works in front of other clusters: Apache Kafka 3.9, and franz-go's kfake.

Kafka runs where its jars are (ANABRANCH_KAFKA_JARS, see tests/differential/kafka_server.py). ANABRANCH_KFAKE names a
program that starts kfake with three brokers, prints their addresses with commas between them, and runs until it is
ended. Where one is missing, that is said aloud.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import pytest

from anabranch import Admin, Consumer, Producer
from anabranch.cluster.in_process import Cluster
from anabranch.journal.capture import capture
from anabranch.journal.recording import read_recording
from anabranch.journal.replay import Replay
from anabranch.protocol.apis.metadata import MetadataRequest
from anabranch.proxy.proxy import Proxy
from anabranch.runtime.sockets import free_ports
from tests.anabranch.proxy.stories import PARTITIONS, VALUES, everything, make_topics, settings
from tests.anabranch.proxy.test_proxy import call
from tests.anabranch.proxy.test_secured import PASSWORD, own_tls, story, upstream_tls
from tests.differential.kafka_server import KafkaCluster, why_absent
from tests.differential.replay import CLUSTER
from tests.secured.certificates import PLAIN_MODULE, SCRAM_MODULE, files

KFAKE = os.environ.get("ANABRANCH_KFAKE", "")
LAZY = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")
Start = Callable[[], AbstractAsyncContextManager[str]]


@contextlib.asynccontextmanager
async def kafka() -> AsyncIterator[str]:
    """The bootstrap servers of Kafka."""
    if reason := why_absent():
        pytest.skip(f"NO PROXY IN FRONT OF KAFKA: {reason}")
    async with KafkaCluster(3, properties={**CLUSTER, "default.replication.factor": "2"}) as cluster:
        yield cluster.bootstrap_servers.partition(",")[0]


@contextlib.asynccontextmanager
async def kfake() -> AsyncIterator[str]:
    """The bootstrap servers of kfake."""
    if not KFAKE:
        pytest.skip("NO PROXY IN FRONT OF KFAKE: ANABRANCH_KFAKE names no program that starts it")
    process = await asyncio.create_subprocess_exec(KFAKE, "unused", stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield (await process.stdout.readline()).decode().strip().partition(",")[0]
    finally:
        process.terminate()
        await process.wait()


@LAZY
@pytest.mark.kafka_jars
@pytest.mark.parametrize("start", [kafka, kfake])
@pytest.mark.parametrize("journal_size", [0, 5000])
async def test_three_clients_work_with_rules(start: Start, journal_size: int) -> None:
    async with start() as servers, asyncio.timeout(180):
        given = settings(servers, journal_size=journal_size, frames=True)
        async with Proxy(given) as proxy:
            assert len(proxy.node_ids) == 3
            ports = {row["node"]: row["port"] for row in proxy.nodes()}
            names = [f"all-{one}" for one in ("confluent", "kafka-python", "aiokafka")]
            await make_topics(proxy.bootstrap_servers, *names, "orders")
            for version in (0, 9, 12):
                response = await call(proxy.bootstrap_servers.partition(",")[0], MetadataRequest(topics=[]), version)
                assert {one.node_id: one.port for one in response.brokers} == ports
            await everything(proxy.bootstrap_servers, "all")
            await one_partition_of_three_is_refused(proxy)
            await a_fetch_is_held(proxy)
            if proxy.journal is not None:
                for client in ("confluent", "kafka-python", "aiokafka"):
                    assert proxy.journal.count(api="EndTxn", client_id=client) == 1
                    assert proxy.journal.count(api="OffsetCommit", client_id=client) >= 1


async def one_partition_of_three_is_refused(proxy: Proxy) -> None:
    async with Producer(proxy.bootstrap_servers, client_id="shop") as producer:
        with proxy.faults(api="Produce", topic="orders", partition=1, error="NOT_LEADER_OR_FOLLOWER", times=2) as rule:
            sent = [await producer.send("orders", b"x", partition=one) for one in range(PARTITIONS)]
            assert [(await one).offset for one in sent] == [0, 0, 0]
        assert rule.hits == 2
        with proxy.faults(api="Produce", topic="orders", disconnect="middle", times=1) as torn:
            await producer.send_and_wait("orders", b"y", partition=0)
        assert torn.hits == 1


async def a_fetch_is_held(proxy: Proxy) -> None:
    gate = proxy.faults.add(api="Fetch", topic="orders", hold=True)
    consumer = Consumer(
        "orders", bootstrap_servers=proxy.bootstrap_servers, group_id="held", auto_offset_reset="earliest"
    )
    async with consumer:
        polling = asyncio.create_task(consumer.getmany(timeout_ms=60_000))
        await gate.wait_hit()
        assert not polling.done()
        gate.release()
        found = sum(map(len, (await polling).values()))
        while found < PARTITIONS:
            found += sum(map(len, (await consumer.getmany(timeout_ms=1000)).values()))
    proxy.faults.remove(gate.rule.name)


@LAZY
@pytest.mark.kafka_jars
async def test_clients_authenticate_to_kafka_with_tls_on_both_sides() -> None:
    if reason := why_absent():
        pytest.skip(f"NO PROXY IN FRONT OF KAFKA: {reason}")
    prefix, (port,) = "listener.name.sasl_ssl", free_ports("127.0.0.1", 1)
    properties = {
        **CLUSTER,
        **files().properties,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        f"{prefix}.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="{PASSWORD}";',
        f"{prefix}.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        f"{prefix}.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    }
    clients = ("confluent", "kafka-python", "aiokafka")
    kafka = KafkaCluster(1, properties=properties, listeners=[f"SASL_SSL://127.0.0.1:{port}"])
    async with kafka, asyncio.timeout(180):
        async with Admin(kafka.bootstrap_servers) as admin:
            await admin.set_password("alice", PASSWORD)
        await make_topics(kafka.bootstrap_servers, *clients)
        given = settings(f"127.0.0.1:{port}", tls=own_tls(), upstream_tls=upstream_tls(), journal_size=1000)
        async with Proxy(given) as proxy:
            found = await asyncio.gather(*(story(one, proxy.bootstrap_servers, one, tls=True) for one in clients))
            assert found == [VALUES] * 3
            assert proxy.journal is not None and proxy.journal.count(api="SaslAuthenticate") >= 3


@LAZY
@pytest.mark.kafka_jars
async def test_exchanges_with_kafka_get_equal_responses_from_our_cluster() -> None:
    async with kafka() as servers, asyncio.timeout(180):
        async with Proxy(settings(servers, journal_size=5000, frames=True)) as proxy:
            await make_topics(proxy.bootstrap_servers, "all-confluent", "all-kafka-python", "all-aiokafka")
            await everything(proxy.bootstrap_servers, "all")
            assert proxy.journal is not None
            recorded = read_recording(capture(proxy.journal.entries(), 0.0))
        async with Cluster(3, seed=1) as ours:
            found = [one async for one in Replay(recorded, ours.bootstrap_servers).play()]
    answered = ("Produce", "JoinGroup", "SyncGroup", "OffsetCommit", "EndTxn", "AddPartitionsToTxn", "LeaveGroup")
    mine = [one for one in found if one.api in answered]
    different = [(one.api, one.differences) for one in mine if one.differences]
    assert len(mine) > 15 and not different, different
