"""A listener admits clients by its properties, tells others as little as Kafka, and bounds both.

Method: clusters over TCP with listeners of every protocol between brokers, clients of our own and raw sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch import Admin, Consumer, NewTopic, Producer
from anabranch.broker.config.broker_settings import ConfigError
from anabranch.clients.authentication import AuthenticationFailed
from anabranch.clients.connection import Connection
from anabranch.clients.security import SecurityArguments
from anabranch.clients.security_config import make_security
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.apis.metadata import MetadataRequest
from tests.broker.serving import Peer, request_frame, until
from tests.secured.certificates import PLAIN_MODULE, Files, files, plain_users
from tests.secured.issuer import Issuer, jwks

ALICE: SecurityArguments = {"sasl_plain_username": "alice", "sasl_plain_password": "in wonderland"}
UNCHECKED = {"ssl.endpoint.identification.algorithm": ""}
"""Brokers believe each other whatever their certificates name."""
USERS = {"admin": "of brokers", "alice": "in wonderland"}


def properties_of(protocol: str, **more: str) -> dict[str, str]:
    """What a cluster with one listener of this protocol is given."""
    given = {"listener.name.sasl_ssl.ssl.client.auth": "none"} if protocol == "SASL_SSL" else {}
    if protocol.endswith("SSL"):
        given |= files().properties
    if protocol.startswith("SASL"):
        given |= plain_users(protocol, **USERS)
    return given | more


def arguments_of(protocol: str) -> SecurityArguments:
    """How a client of it is let in."""
    arguments: SecurityArguments = {"security_protocol": protocol}
    if protocol.endswith("SSL"):
        arguments["ssl_cafile"] = str(files().ca)
    if protocol.startswith("SASL"):
        arguments |= ALICE
    return arguments


@contextlib.asynccontextmanager
async def one_broker(protocol: str, **more: str) -> AsyncIterator[Cluster]:
    """A cluster of one broker with one listener."""
    async with Cluster(1, listeners=[f"{protocol}://127.0.0.1:0"], properties=properties_of(protocol, **more)) as one:
        yield one


async def principal_of(cluster: Cluster, arguments: SecurityArguments) -> str:
    """Return the principal of a client, as a broker authenticates it."""
    host, port = cluster.address(1)
    connection = await Connection.open(host, port, client_id="test", security=make_security(**arguments))
    try:
        assert (await connection.call(MetadataRequest(topics=None))).brokers
        return next(reversed(cluster.nodes[1].server._connections)).peer.principal
    finally:
        await connection.close()


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
async def test_brokers_and_clients_work_over_every_protocol(protocol: str) -> None:
    async with Cluster(3, listeners=[f"{protocol}://127.0.0.1:0"], properties=properties_of(protocol)) as cluster:
        security = arguments_of(protocol)
        async with Admin(cluster.bootstrap_servers, **security) as admin:
            await admin.create_topics([NewTopic(name="t", partitions=2, replication_factor=3)])
        producer = Producer(cluster.bootstrap_servers, transactional_id="x", **security)
        async with producer, producer.transaction():
            for n in range(20):
                await producer.send("t", str(n).encode(), key=b"k")
        consumer = Consumer(
            "t",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            **security,
        )
        async with consumer:
            for n in range(20):
                assert (await anext(consumer)).value == str(n).encode()


async def test_client_certificate_determines_the_principal() -> None:
    rules = {"ssl.principal.mapping.rules": "RULE:^CN=(.*?),O=Acme$/$1/L,DEFAULT"}
    async with one_broker("SSL", **{"ssl.client.auth": "required"}, **rules) as cluster:
        arguments: SecurityArguments = {**arguments_of("SSL"), "ssl_certfile": str(files().identity("Alice"))}
        assert await principal_of(cluster, arguments) == "User:alice"
    async with one_broker("SSL", **{"ssl.client.auth": "requested"}) as cluster:
        assert await principal_of(cluster, arguments) == "User:CN=Alice,O=Acme"
        assert await principal_of(cluster, arguments_of("SSL")) == "User:ANONYMOUS"


async def test_client_without_trusted_certificate_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with one_broker("SSL", **{"ssl.client.auth": "required"}) as cluster:
        with pytest.raises(ConnectionError):
            await principal_of(cluster, arguments_of("SSL"))
        await until(lambda: "no TLS at SSL: PEER_DID_NOT_RETURN_A_CERTIFICATE" in caplog.text)
    (files().directory / "other").mkdir(exist_ok=True)
    other = Files(files().directory / "other")
    async with one_broker("SSL", **{"ssl.client.auth": "requested"}) as cluster:
        with pytest.raises(ConnectionError):
            await principal_of(cluster, {**arguments_of("SSL"), "ssl_certfile": str(other.identity("mallory"))})
        await until(lambda: "CERTIFICATE_VERIFY_FAILED" in caplog.text)


async def test_client_verifies_the_brokers_certificate_and_host_name() -> None:
    async with one_broker("SSL") as cluster:
        with pytest.raises(AuthenticationFailed, match=r"unable to get local issuer|self-signed"):
            await principal_of(cluster, {"security_protocol": "SSL"})
        broker = cluster.nodes[1].server.port
        for host in ("localhost", "127.0.0.1"):
            security = make_security(**arguments_of("SSL"))
            await (await Connection.open(host, broker, client_id="test", security=security)).close()
        elsewhere = files().identity("elsewhere", hosts=("kafka.example",))
    async with one_broker("SSL", **{"ssl.keystore.location": str(elsewhere)}, **UNCHECKED) as cluster:
        with pytest.raises(AuthenticationFailed, match="IP address mismatch"):
            await principal_of(cluster, arguments_of("SSL"))
        assert await principal_of(cluster, {**arguments_of("SSL"), "ssl_check_hostname": False})


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_only_enabled_tls_versions_are_accepted(version: str) -> None:
    async with one_broker("SSL", **{"ssl.enabled.protocols": version}) as cluster:
        for offered in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = ssl.create_default_context(cafile=str(files().ca))
            context.minimum_version = context.maximum_version = offered
            arguments: SecurityArguments = {"security_protocol": "SSL", "ssl_context": context}
            if offered.name == version.replace(".", "_"):
                assert await principal_of(cluster, arguments)
            else:
                with pytest.raises(ConnectionError):
                    await principal_of(cluster, arguments)


async def test_wrong_password_is_answered_after_the_failed_authentication_delay() -> None:
    async with one_broker("SASL_PLAINTEXT", **{"connection.failed.authentication.delay.ms": "150"}) as cluster:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        with pytest.raises(AuthenticationFailed, match="Authentication failed: Invalid username or password"):
            await principal_of(cluster, {**arguments_of("SASL_PLAINTEXT"), "sasl_plain_password": "guessed"})
        assert loop.time() - began_s > 0.14
        assert await principal_of(cluster, arguments_of("SASL_PLAINTEXT")) == "User:alice"


async def test_client_with_the_wrong_security_protocol_is_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    for protocol, line in (
        ("SSL", "no TLS at SSL: the client sent no TLS"),
        ("SASL_PLAINTEXT", "not authenticated: Metadata before authentication"),
    ):
        async with one_broker(protocol) as cluster:
            with pytest.raises(ConnectionError) as caught:
                await principal_of(cluster, {})
            assert line in caplog.text or protocol == "SASL_PLAINTEXT"
            assert "security_protocol" in str(caught.value) or protocol == "SASL_PLAINTEXT"
    async with Cluster(1) as cluster:
        with pytest.raises(ConnectionError, match="closed in the TLS handshake: its listener may not use TLS"):
            await principal_of(cluster, arguments_of("SSL"))
        assert "a TLS handshake; this port is not a TLS port" in caplog.text
        with pytest.raises(AuthenticationFailed, match="has no SASL"):
            await principal_of(cluster, arguments_of("SASL_PLAINTEXT"))


@contextlib.asynccontextmanager
async def raw(cluster: Cluster) -> AsyncIterator[Peer]:
    """A socket to the broker."""
    reader, writer = await asyncio.open_connection(*cluster.address(1))
    peer = Peer(reader, writer)
    try:
        yield peer
    finally:
        await peer.close()


def handshake(version: int, mechanism: bytes = b"PLAIN") -> bytes:
    return request_frame(17, version, struct.pack(">h", len(mechanism)) + mechanism)


async def test_sasl_tokens_without_header_are_answered_without_header() -> None:
    async with one_broker("SASL_PLAINTEXT") as cluster, raw(cluster) as peer:
        peer.send(handshake(0))
        assert (await peer.frame())[4:6] == b"\0\0"
        peer.send(b"\0alice\0in wonderland")
        peer.send(request_frame(3, 0, struct.pack(">i", 0)))
        assert await peer.frame() == b""
        assert len(await peer.frame()) > 10
    async with one_broker("SASL_PLAINTEXT") as cluster, raw(cluster) as peer:
        peer.send(handshake(0))
        await peer.frame()
        peer.send(b"\0alice\0guessed")
        assert await peer.reader.read() == b""


async def test_oversized_request_before_authentication_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    frames = {
        "500 MB": struct.pack(">i", 500 << 20),
        "negative": struct.pack(">i", -5),
        "512 KiB + 1": struct.pack(">i", 524289),
        "no header": struct.pack(">i", 3) + b"abc",
        "unknown API": struct.pack(">i", 11) + request_frame(999, 0),
        "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    }
    async with one_broker("SASL_PLAINTEXT") as cluster:
        for what, frame in frames.items():
            async with raw(cluster) as peer:
                peer.writer.write(frame)
                assert await peer.reader.read() == b"", what
        async with raw(cluster) as peer:
            peer.send(handshake(1))
            await peer.frame()
            peer.writer.write(struct.pack(">i", 524289))
            assert await peer.reader.read() == b""
        server = cluster.nodes[1].server
        assert server.request_memory.held_bytes == 0
        assert await principal_of(cluster, arguments_of("SASL_PLAINTEXT")) == "User:alice"


async def test_large_request_after_authentication_is_accepted() -> None:
    async with (
        one_broker("SASL_PLAINTEXT") as cluster,
        Producer(cluster.bootstrap_servers, batch_bytes=900_000, **arguments_of("SASL_PLAINTEXT")) as producer,
    ):
        await producer.send_and_wait("t", bytes(800_000))


async def test_unfinished_handshakes_do_not_delay_other_connections() -> None:
    async with one_broker("SASL_SSL") as cluster:
        server = cluster.nodes[1].server
        before = server.connection_count
        idle = [await asyncio.open_connection(*cluster.address(1)) for _ in range(200)]
        for _, writer in idle[::2]:
            writer.write(b"\x16\x03\x01\x02\x00")
        await until(lambda: server.connection_count == before + 200)
        assert await principal_of(cluster, arguments_of("SASL_SSL")) == "User:alice"
        for _, writer in idle:
            writer.close()
        await until(lambda: server.connection_count == before)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "Kerberos is not supported"),
        ({"sasl.enabled.mechanisms": "PLAIN,WHAT"}, "sasl.enabled.mechanisms=WHAT"),
        ({"listener.name.sasl_ssl.plain.sasl.jaas.config": "x required;"}, "unknown module"),
        ({"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"}, "is not among"),
        ({"ssl.keystore.location": "/nowhere"}, "/nowhere"),
        ({"ssl.keystore.location": ""}, "needs a key and a certificate"),
        ({"ssl.keystore.type": "JKS"}, "ssl.keystore.password"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "write TLSv1.2, TLSv1.3 or both"),
        ({"ssl.principal.mapping.rules": "RULE:x"}, "Invalid rule"),
        ({"ssl.cipher.suites": "TLS_NOT_WITH_MUCH"}, "unknown cipher suites"),
    ],
)
async def test_invalid_security_configuration_fails_the_start(given: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        async with one_broker("SASL_SSL", **given):
            raise AssertionError("it started")


async def test_expiring_session_is_renewed_by_clients_and_enforced_by_the_broker() -> None:
    lifetime = {"listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "1500"}
    async with one_broker("SASL_PLAINTEXT", **lifetime) as cluster:
        host, port = cluster.address(1)
        security = make_security(**arguments_of("SASL_PLAINTEXT"))
        connection = await Connection.open(host, port, client_id="t", security=security)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + 4
        while loop.time() < until_s:
            assert (await connection.call(MetadataRequest(topics=None))).brokers
        await connection.close()
        async with raw(cluster) as peer:
            peer.send(handshake(1))
            await peer.frame()
            peer.send(request_frame(36, 1, struct.pack(">i", 20) + b"\0alice\0in wonderland"))
            answer = await peer.frame()
            assert struct.unpack(">q", answer[-8:]) == (1500,)
            async with asyncio.timeout(30):
                while True:
                    peer.send(request_frame(3, 0, struct.pack(">i", 0)))
                    with contextlib.suppress(asyncio.IncompleteReadError):
                        await peer.frame()
                        continue
                    break


def test_secrets_are_not_in_any_repr() -> None:
    given = plain_users("SASL_SSL", **USERS)
    from anabranch.broker.config.broker_settings import BrokerSettings
    from anabranch.broker.config.effective_config import with_properties

    settings = with_properties(BrokerSettings(), {**given, "listeners": "SASL_SSL://127.0.0.1:0"})
    assert "wonderland" not in repr(settings)
    assert "wonderland" not in repr(make_security(security_protocol="SASL_PLAINTEXT", **ALICE))
    assert PLAIN_MODULE not in repr(settings)


OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"


def signed_properties(folder: Path, issuer: Issuer, **more: str) -> dict[str, str]:
    """A listener that takes this issuer's tokens; brokers have one of their own in a file."""
    (folder / "keys.json").write_text(jwks(issuer))
    (folder / "token").write_text(issuer.token(time.time(), sub="broker", exp=time.time() + 3600))
    prefix = "listener.name.sasl_plaintext.oauthbearer"
    return {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        f"{prefix}.sasl.jaas.config": f"{OAUTH_MODULE} required;",
        f"{prefix}.sasl.server.callback.handler.class": VALIDATOR,
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{folder}/keys.json",
        "sasl.oauthbearer.token.endpoint.url": f"file://{folder}/token",
        **more,
    }


async def test_clients_and_brokers_authenticate_with_signed_tokens(tmp_path: Path) -> None:
    issuer = Issuer()
    properties = signed_properties(tmp_path, issuer)
    async with Cluster(2, listeners=["SASL_PLAINTEXT://127.0.0.1:0"], properties=properties) as cluster:

        def bearing(token: str) -> SecurityArguments:
            return {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauth_token_provider": lambda: token,
            }

        async with Admin(cluster.bootstrap_servers, **bearing(issuer.token(time.time()))) as admin:
            await admin.create_topics([NewTopic(name="t", replication_factor=2)])
        assert await principal_of(cluster, bearing(issuer.token(time.time(), sub="bob"))) == "User:bob"
        for wrong in (Issuer().token(time.time()), issuer.token(time.time() - 3600), "e30.e30."):
            with pytest.raises(AuthenticationFailed, match='"status":"invalid_token"'):
                await principal_of(cluster, bearing(wrong))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"sasl.oauthbearer.jwks.endpoint.url": ""}, "sasl.oauthbearer.jwks.endpoint.url is missing"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "file:///nowhere/keys.json"}, "No such file or directory: /nowhere"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "http://127.0.0.1:1/keys"}, "Connection refused"),
        ({"sasl.oauthbearer.token.endpoint.url": "ftp://issuer/token"}, "write file:///..., https://"),
        (
            {"sasl.oauthbearer.token.endpoint.url": "https://issuer/token"},
            "needs a module with clientId and clientSecret",
        ),
        (
            {"listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": "com.example.Mine"},
            "com.example.Mine: only org.apache.kafka",
        ),
    ],
)
async def test_oauthbearer_listener_with_unusable_validator_does_not_start(
    tmp_path: Path, changed: dict[str, str], message: str
) -> None:
    properties = {**signed_properties(tmp_path, Issuer()), **changed}
    with pytest.raises(ConfigError, match=message):
        async with Cluster(1, listeners=["SASL_PLAINTEXT://127.0.0.1:0"], properties=properties):
            pass
