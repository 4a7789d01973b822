"""Goal: the clients that people use get in by every door that they know, and nobody else does.

Method: three brokers that talk to each other over SASL_SSL, with a listener of every protocol; confluent-kafka
(librdkafka), aiokafka and kafka-python each produce and consume over it, with the right secret and with a wrong one.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from typing import Any

import pytest

from anabranch import Admin, NewTopic
from anabranch.cluster import Cluster
from tests.broker.serving import until
from tests.secured.certificates import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE, files

PASSWORD = "wonderland"
DOORS = ("SSL", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def properties() -> dict[str, str]:
    """Three brokers with every listener; brokers log in as admin."""
    plain = f'{PLAIN_MODULE} required username="admin" password="a" user_admin="a" user_alice="{PASSWORD}";'
    given = {
        **files().properties,
        "listener.name.ssl.ssl.client.auth": "required",
        "inter.broker.listener.name": "SASL_SSL",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        given[f"listener.name.{listener}.plain.sasl.jaas.config"] = plain
        given[f"listener.name.{listener}.oauthbearer.sasl.jaas.config"] = f"{OAUTH_MODULE} required;"
        given[f"listener.name.{listener}.scram-sha-256.sasl.jaas.config"] = f"{SCRAM_MODULE} required;"
    return given


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """The cluster, with the topic and the user."""
    async with Cluster(3, listeners=[f"{one}://127.0.0.1:0" for one in PROTOCOLS], properties=properties()) as cluster:
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic(name="t", partitions=2, replication_factor=3)])
            await admin.set_password("alice", PASSWORD)
            known = [node._credentials for node in cluster.nodes.values()]
            await until(lambda: all(one is not None and one.of("SCRAM-SHA-512", "alice") for one in known))
        yield cluster


def door(cluster: Cluster, name: str, tls: bool) -> tuple[str, str]:
    """Protocol and addresses by which a client goes in."""
    protocol = "SSL" if name == "SSL" else "SASL_SSL" if tls else "SASL_PLAINTEXT"
    return protocol, cluster.bootstrap_servers_of(protocol)


def confluent(protocol: str, servers: str, mechanism: str, password: str) -> list[bytes]:
    """What librdkafka has produced and consumed."""
    import confluent_kafka

    config: dict[str, Any] = {"bootstrap.servers": servers, "security.protocol": protocol}
    if protocol.endswith("SSL"):
        config["ssl.ca.location"] = str(files().ca)
    if protocol == "SSL":
        identity = str(files().identity("alice"))
        config |= {"ssl.certificate.location": identity, "ssl.key.location": identity}
    else:
        config |= {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": password}
    failures: list[Any] = []
    producer = confluent_kafka.Producer({**config, "error_cb": failures.append, "message.timeout.ms": 20000})
    producer.produce("t", b"value", key=b"k")
    while producer.flush(0.1):
        refused = [one for one in failures if one.code() == confluent_kafka.KafkaError._AUTHENTICATION]
        if refused:
            raise PermissionError(refused[0].str())
    consumer = confluent_kafka.Consumer({**config, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    try:
        while True:
            record = consumer.poll(10)
            if record is not None and record.error() is None:
                return [record.value()]
    finally:
        consumer.close()


def kafka_python(protocol: str, servers: str, mechanism: str, password: str) -> list[bytes]:
    """What kafka-python has produced and consumed."""
    import kafka
    import kafka.errors

    config: dict[str, Any] = {"bootstrap_servers": servers, "security_protocol": protocol}
    if protocol.endswith("SSL"):
        config["ssl_cafile"] = str(files().ca)
    if protocol == "SSL":
        config["ssl_certfile"] = str(files().identity("alice"))
    else:
        config |= {"sasl_mechanism": mechanism, "sasl_plain_username": "alice", "sasl_plain_password": password}
    try:
        producer = kafka.KafkaProducer(**config)
        producer.send("t", b"value", key=b"k").get(20)
        producer.close()
    except (kafka.errors.KafkaError, AssertionError) as error:
        raise PermissionError(str(error)) from None
    consumer = kafka.KafkaConsumer("t", group_id="g", auto_offset_reset="earliest", **config)
    try:
        return [next(consumer).value]
    finally:
        consumer.close()


def aio(protocol: str, servers: str, mechanism: str, password: str) -> list[bytes]:
    """What aiokafka has produced and consumed."""
    import aiokafka
    import aiokafka.errors

    config: dict[str, Any] = {"bootstrap_servers": servers, "security_protocol": protocol}
    if protocol.endswith("SSL"):
        context = ssl.create_default_context(cafile=str(files().ca))
        if protocol == "SSL":
            context.load_cert_chain(files().identity("alice"))
        config["ssl_context"] = context
    if protocol != "SSL":
        config |= {"sasl_mechanism": mechanism, "sasl_plain_username": "alice", "sasl_plain_password": password}

    async def main() -> list[bytes]:
        producer = aiokafka.AIOKafkaProducer(**config)
        try:
            await producer.start()
            await producer.send_and_wait("t", b"value", key=b"k")
        except aiokafka.errors.KafkaError as error:
            raise PermissionError(str(error)) from None
        finally:
            await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer("t", group_id="g", auto_offset_reset="earliest", **config)
        await consumer.start()
        try:
            return [(await consumer.getone()).value]
        finally:
            await consumer.stop()

    return asyncio.run(main())


LAZY = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")
"""kafka-python reads its own files so."""
CLIENTS = {"confluent-kafka": confluent, "kafka-python": kafka_python, "aiokafka": aio}


@LAZY
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("name", DOORS)
async def test_a_client_gets_in_with_the_right_secret_and_not_with_another(
    cluster: Cluster, client: str, name: str
) -> None:
    act = CLIENTS[client]
    for tls in (True,) if name == "SSL" else (False, True):
        protocol, servers = door(cluster, name, tls)
        assert await asyncio.to_thread(act, protocol, servers, name, PASSWORD) == [b"value"]
    if name != "SSL":
        with pytest.raises(PermissionError):
            await asyncio.to_thread(act, protocol, servers, name, "guessed")
