"""Authentication passes through a proxy, with TLS on either side; no secret is kept."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from typing import Any

import pytest

from anabranch import Admin
from anabranch.broker.authentication.tls_handshakes import ReportingContext
from anabranch.clients.tls import TlsSettings, client_context, server_context
from anabranch.cluster.in_process import Cluster
from anabranch.proxy.proxy import Proxy
from tests.anabranch.proxy.stories import VALUES, aiokafka, confluent, kafka_python, make_topics, settings
from tests.broker.serving import until
from tests.secured.certificates import PLAIN_MODULE, SCRAM_MODULE, files

LAZY = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")
LISTENERS = [f"{one}://127.0.0.1:0" for one in ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL")]
PASSWORD = "wonderland"


@contextlib.asynccontextmanager
async def secured() -> AsyncIterator[Cluster]:
    given = {**files().properties, "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"}
    for listener in ("sasl_plaintext", "sasl_ssl"):
        prefix = f"listener.name.{listener}"
        given[f"{prefix}.plain.sasl.jaas.config"] = f'{PLAIN_MODULE} required user_alice="{PASSWORD}";'
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            given[f"{prefix}.{mechanism}.sasl.jaas.config"] = f"{SCRAM_MODULE} required;"
    async with asyncio.timeout(100), Cluster(1, listeners=LISTENERS, properties=given) as cluster:
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.set_password("alice", PASSWORD)
            known = [node._credentials for node in cluster.nodes.values()]
            await until(lambda: all(one is not None and one.of("SCRAM-SHA-512", "alice") for one in known))
        yield cluster


def upstream_tls() -> ssl.SSLContext:
    return client_context(TlsSettings(truststore_type="PEM", truststore_location=str(files().ca)))


def own_tls() -> ReportingContext:
    own = TlsSettings(keystore_type="PEM", keystore_location=str(files().broker))
    return server_context(own, "none", ReportingContext)


async def story(client: str, servers: str, topic: str, *, tls: bool, password: str = PASSWORD) -> list[bytes]:
    """What a client does who logs in."""
    protocol, ca = "SASL_SSL" if tls else "SASL_PLAINTEXT", str(files().ca)
    if client == "confluent":
        said: dict[str, Any] = {
            "security.protocol": protocol,
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "alice",
            "sasl.password": password,
            **({"ssl.ca.location": ca} if tls else {}),
        }
        return await asyncio.to_thread(confluent, servers, topic, **said)
    said = {"security_protocol": protocol, "sasl_plain_username": "alice", "sasl_plain_password": password}
    if client == "aiokafka":
        context = {"ssl_context": ssl.create_default_context(cafile=ca)} if tls else {}
        return await aiokafka(servers, topic, sasl_mechanism="SCRAM-SHA-512", **said, **context)
    authority = {"ssl_cafile": ca} if tls else {}
    return await asyncio.to_thread(kafka_python, servers, topic, sasl_mechanism="PLAIN", **said, **authority)


WAYS = [("SASL_PLAINTEXT", False, False), ("SASL_SSL", True, True), ("SASL_SSL", False, True)]
WAYS += [("SASL_PLAINTEXT", True, False)]


@LAZY
@pytest.mark.parametrize(("listener", "here", "there"), WAYS)
async def test_clients_authenticate_with_tls_on_both_sides_one_or_none(listener: str, here: bool, there: bool) -> None:
    async with secured() as cluster:
        clients = ("confluent", "kafka-python", "aiokafka")
        await make_topics(cluster.bootstrap_servers, *clients)
        given = settings(
            cluster.bootstrap_servers_of(listener),
            tls=own_tls() if here else None,
            upstream_tls=upstream_tls() if there else None,
            journal_size=1000,
            frames=True,
        )
        async with Proxy(given) as proxy:
            assert proxy.node_ids == [], "nobody has logged in"
            found = await asyncio.gather(*(story(one, proxy.bootstrap_servers, one, tls=here) for one in clients))
            assert found == [VALUES] * 3
            assert proxy.node_ids == [1], "learned from what clients were answered"
            assert proxy.journal is not None and proxy.journal.count(api="Produce", topic="confluent") >= 1
            rows = json.dumps([one.row() for one in proxy.journal])
            assert PASSWORD not in rows and PASSWORD.encode().hex() not in rows
            logins = proxy.journal.entries(api="SaslAuthenticate")
            assert logins and not any(one.frames for one in logins)


async def test_wrong_password_is_refused_by_cluster() -> None:
    import aiokafka.errors

    async with secured() as cluster, Proxy(settings(cluster.bootstrap_servers_of("SASL_PLAINTEXT"))) as proxy:
        with pytest.raises(aiokafka.errors.KafkaError):
            await story("aiokafka", proxy.bootstrap_servers, "t", tls=False, password="guessed")


async def test_plaintext_to_tls_port_and_untrusted_upstream_are_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with secured() as cluster:
        stranger = ssl.create_default_context()
        servers = cluster.bootstrap_servers_of("SASL_SSL")
        async with Proxy(settings(servers, tls=own_tls(), upstream_tls=stranger)) as proxy:
            assert "certificate" in caplog.text and "does not respond" in caplog.text
            host, port = proxy.bootstrap_servers.split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"\0\0\0\x0a" * 10)
            assert await reader.read() == b""
            writer.close()
            await until(lambda: "the client sent no TLS" in caplog.text)
