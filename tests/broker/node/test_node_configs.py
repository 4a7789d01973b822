"""A node takes up changed key stores, and starts beside malformed configurations.

The tests of `tests/broker/config`, `quotas` and `telemetry` change the other configurations.
"""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from anabranch import Admin, NewTopic, Producer
from anabranch.clients.authentication import AuthenticationFailed
from anabranch.cluster.in_process import Cluster
from anabranch.controller.zk import paths
from anabranch.controller.zk.session import NodeExists
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.broker.authentication.test_listener_security import arguments_of, one_broker, principal_of
from tests.secured.certificates import HOSTS, files


async def test_reloaded_keystore_is_used_from_the_next_handshake(caplog: pytest.LogCaptureFixture) -> None:
    """As with kafka-configs: the same location again, or another one."""
    store = files().identity("reloaded", hosts=("127.0.0.1",))
    location = {"listener.name.ssl.ssl.keystore.location": str(store)}
    async with (
        one_broker("SSL", **{"ssl.keystore.location": str(store)}) as cluster,
        Admin(cluster.bootstrap_servers, **arguments_of("SSL")) as admin,
    ):
        files().identity("reloaded", hosts=("kafka.example",))
        assert await principal_of(cluster, arguments_of("SSL")), "nobody has said that it is another one"
        await admin.alter_configs(broker=1, changes=location)

        async def refused() -> bool:
            try:
                await principal_of(cluster, arguments_of("SSL"))
            except AuthenticationFailed as error:
                return "IP address mismatch" in str(error)
            return False

        async with asyncio.timeout(20):
            while not await refused():
                pass
        assert await admin.list_topics() == [], "connections that are open stay"
        files().identity("reloaded", hosts=("127.0.0.1",))
        await admin.alter_configs(broker=1, changes=location)
        async with asyncio.timeout(20):
            while await refused():
                pass
        files().identity("reloaded", hosts=("kafka.example",))
        await admin.alter_configs(broker=1, changes=location)
        async with asyncio.timeout(20):
            while not await refused():
                pass
        other = files().identity("reloaded-too", hosts=("127.0.0.1",))
        await admin.alter_configs(broker=1, changes={"listener.name.ssl.ssl.keystore.location": str(other)})
        async with asyncio.timeout(20):
            while await refused():
                pass
        store.write_text("nothing")
        for nonsense in (location, {"listener.name.ssl.ssl.keystore.location": "/nowhere"}):
            with pytest.raises(KafkaError, match=r"listener SSL: .*(no private key|/nowhere)") as refused:
                await admin.alter_configs(broker=1, changes=nonsense)
            assert refused.value.code == ErrorCode.INVALID_REQUEST
        other.write_text("nothing")  # after the change that named it was tried
        cluster.nodes[1]._configs._reload_key_stores()
        assert "listener SSL keeps its previous certificate" in caplog.text
        assert await principal_of(cluster, arguments_of("SSL"))


async def test_keystore_and_its_password_can_be_changed_dynamically() -> None:
    issued = files().issue("sealed", hosts=("127.0.0.1",))
    names = ("type", "location", "password")

    def sealed(password: str) -> dict[str, str]:
        path = files().write(f"{password}.p12", issued.store(password))
        return dict(zip(names, ("PKCS12", str(path), password), strict=True))

    first = {f"ssl.keystore.{name}": value for name, value in sealed("first").items()}
    async with one_broker("SSL", **first) as cluster, Admin(cluster.bootstrap_servers, **arguments_of("SSL")) as admin:
        later = {f"listener.name.ssl.ssl.keystore.{name}": value for name, value in sealed("later").items()}
        with pytest.raises(KafkaError, match="not read with this password") as refused:
            await admin.alter_configs(broker=1, changes={**later, "listener.name.ssl.ssl.keystore.password": "guessed"})
        assert "guessed" not in str(refused.value)
        await admin.alter_configs(broker=1, changes=later)
        assert await principal_of(cluster, arguments_of("SSL"))


async def test_reloaded_keystore_is_shown_to_other_brokers() -> None:
    """Where brokers authenticate by certificates, the former one would be refused once it has expired."""
    first, second = (files().identity(name, hosts=HOSTS) for name in ("first", "second"))
    given = {"ssl.client.auth": "required", "ssl.keystore.location": str(first)}
    client = {**arguments_of("SSL"), "ssl_certfile": str(files().identity("Alice"))}
    async with one_broker("SSL", **given) as cluster, Admin(cluster.bootstrap_servers, **client) as admin:
        security = cluster.nodes[1].services.settings.security
        assert security is not None
        assert await principal_of(cluster, {"security": security}) == "User:CN=first,O=Acme"
        await admin.alter_configs(broker=1, changes={"listener.name.ssl.ssl.keystore.location": str(second)})
        async with asyncio.timeout(20):
            while await principal_of(cluster, {"security": security}) != "User:CN=second,O=Acme":
                pass


async def test_malformed_configurations_stop_neither_a_node_nor_the_use_of_topics() -> None:
    """A tool has written numbers in place of strings; a restarted node reads all of them."""
    async with Cluster(1, kafka="4.1") as cluster, Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name="t"), NewTopic(name="u")])
        session = cluster.nodes[1].session
        for entity in (
            "topics/t",
            "brokers/<default>",
            "brokers/1",
            "clients/c",
            "ips/127.0.0.9",
            "groups/g",
            "users/a",
        ):
            body = b'{"version":1,"config":{"retention.ms":5}}'
            with contextlib.suppress(NodeExists):
                await session.create(paths.config(entity), make_parents=True)
            await session.set(paths.config(entity), body)
        await cluster.stop_broker(1)
        await cluster.start_broker(1)
        async with Producer(cluster.bootstrap_servers) as producer:
            for topic in ("t", "u"):
                await producer.send_and_wait(topic, b"v")
        await admin.alter_configs("t", changes={"retention.ms": "6"})
        assert (await admin.describe_configs("t"))["retention.ms"].value == "6"
