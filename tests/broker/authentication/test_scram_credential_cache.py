"""The credentials in use are those in ZooKeeper, for all users and after each change."""

from __future__ import annotations

import asyncio

import pytest

from anabranch import Admin
from anabranch.broker.authentication.scram_credential_cache import ScramCredentials
from anabranch.broker.config.config_changes import change_config
from anabranch.broker.credentials import scram_store
from anabranch.broker.membership import registration
from anabranch.broker.network.server import Server
from anabranch.clients.connection import Connection
from anabranch.clients.security_config import make_security
from anabranch.cluster.in_process import Cluster
from anabranch.controller.zk.memory import MemoryZooKeeper
from anabranch.controller.zk.session import ZkSession

ALICE = scram_store.Upsertion("al/ice é", 1, 4096, b"salt", b"salted")


async def joined() -> ZkSession:
    session = await MemoryZooKeeper().connect()
    await registration.prepare_parents(session)
    return session


async def test_credentials_are_loaded_and_updated_on_change() -> None:
    session, credentials = await joined(), ScramCredentials()
    await credentials.load(session)
    assert credentials.of("SCRAM-SHA-256", "al/ice é") is None
    await scram_store.alter(session, [ALICE], [])
    await credentials.on_change(session, "al%2Fice%20%C3%A9")
    found = credentials.of("SCRAM-SHA-256", "al/ice é")
    assert found is not None and (found.salt, found.iterations) == (b"salt", 4096)
    assert credentials.of("SCRAM-SHA-512", "al/ice é") is None
    other = ScramCredentials()
    await other.load(session)
    assert other.of("SCRAM-SHA-256", "al/ice é") == found


async def test_credentials_of_removed_user_are_dropped() -> None:
    session, credentials = await joined(), ScramCredentials()
    await scram_store.alter(session, [ALICE], [])
    await credentials.load(session)
    await scram_store.alter(session, [], [scram_store.Deletion("al/ice é", 1)])
    await credentials.on_change(session, "al%2Fice%20%C3%A9")
    assert credentials.of("SCRAM-SHA-256", "al/ice é") is None
    await scram_store.alter(session, [ALICE], [])
    await credentials.load(session)
    await session.delete("/config/users/al%2Fice%20%C3%A9")
    await credentials.load(session)
    assert credentials.of("SCRAM-SHA-256", "al/ice é") is None


async def test_malformed_credential_is_skipped_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    session, credentials = await joined(), ScramCredentials()
    await change_config(session, "users/bob", lambda _: {"SCRAM-SHA-256": "salt=planted"})
    await credentials.load(session)
    assert credentials.of("SCRAM-SHA-256", "bob") is None
    assert "credential of user 'bob'" in caplog.text
    assert "planted" not in caplog.text


async def test_login_before_credentials_are_loaded_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a broker's restart, error 58 would end fast clients, because it is not retriable."""
    listener, mechanism = "SASL_PLAINTEXT", "SCRAM-SHA-256"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    properties = {
        "inter.broker.listener.name": "PLAINTEXT",
        f"listener.name.{listener.lower()}.sasl.enabled.mechanisms": mechanism,
        f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config": module,
    }
    addresses = ["PLAINTEXT://127.0.0.1:0", f"{listener}://127.0.0.1:0"]
    alice = make_security(
        security_protocol=listener, sasl_mechanism=mechanism, sasl_plain_username="alice", sasl_plain_password="wonder"
    )
    reading, came, read, admit = asyncio.Event(), asyncio.Event(), ScramCredentials.load, Server.admit

    async def load_late(credentials: ScramCredentials, session: ZkSession) -> None:
        reading.set()
        await came.wait()
        await read(credentials, session)

    def admit_aloud(server: Server, connection: object) -> bool:
        came.set()
        return admit(server, connection)  # type: ignore[arg-type]

    async with Cluster(1, listeners=addresses, properties=properties) as cluster:
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.set_password("alice", "wonder")
        host, _, port = cluster.bootstrap_servers_of(listener).partition(":")
        await cluster.crash_broker(1)
        monkeypatch.setattr(ScramCredentials, "load", load_late)
        monkeypatch.setattr(Server, "admit", admit_aloud)
        starting = asyncio.ensure_future(cluster.start_broker(1))
        await reading.wait()
        connection = await Connection.open(host, int(port), client_id="alice", security=alice)
        await connection.close()
        await starting


async def test_brokers_log_in_to_each_other_with_scram_though_nobody_created_their_user() -> None:
    """Without their user no broker learns of the others, and no client could create it."""
    module = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" password="of brokers";'
    properties = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": module,
    }
    async with Cluster(3, listeners=["SASL_PLAINTEXT://127.0.0.1:0"], properties=properties) as cluster:
        admin = Admin(
            cluster.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_plain_username="admin",
            sasl_plain_password="of brokers",
        )
        async with admin:
            assert await admin.describe_users() == {"admin": {"SCRAM-SHA-512": scram_store.ITERATIONS_MIN}}


async def test_existing_user_of_brokers_keeps_its_password() -> None:
    session = await joined()
    await scram_store.create_missing(session, "admin", "SCRAM-SHA-256", "first")
    credentials = ScramCredentials()
    await credentials.load(session)
    first = credentials.of("SCRAM-SHA-256", "admin")
    await scram_store.create_missing(session, "admin", "SCRAM-SHA-256", "second")
    await scram_store.create_missing(session, "admin", "SCRAM-SHA-512", "second")
    await credentials.load(session)
    assert credentials.of("SCRAM-SHA-256", "admin") == first
    assert credentials.of("SCRAM-SHA-512", "admin") is not None
