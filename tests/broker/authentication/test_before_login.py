"""Before authentication only requests of the login are processed, and no state remains.

Method: seeded connections to a broker over TCP, each with some frames: requests of every API, tokens right and wrong,
whole, cut, altered and glued together, and noise. What was dispatched, held and logged is looked at in the end. Another
seed: ANABRANCH_SEED.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import os
import random
import resource
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anabranch import Admin
from anabranch.clients.connection import Connection
from anabranch.clients.security_config import make_security
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.apis.api_versions import ApiVersionsRequest
from anabranch.protocol.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from anabranch.protocol.apis.sasl_handshake import SaslHandshakeRequest
from anabranch.protocol.connection import ClientConnection
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.registry import BY_NAME
from tests.anabranch.faults.samples import request_of, served
from tests.broker.authentication.test_scram_server import proof
from tests.broker.serving import until
from tests.secured.certificates import OAUTH_MODULE, SCRAM_MODULE, files, plain_users

LISTENER = "SASL_PLAINTEXT"
CONNECTIONS = 600
SEED = int(os.environ.get("ANABRANCH_SEED", "1"))
PROPERTIES = {
    **plain_users(LISTENER, admin="a", alice="b"),
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
    f"listener.name.{LISTENER.lower()}.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    f"listener.name.{LISTENER.lower()}.oauthbearer.sasl.jaas.config": f"{OAUTH_MODULE} required;",
    "connection.failed.authentication.delay.ms": "0",
    "delegation.token.secret.key": "k",
}
ALLOWED = {BY_NAME[name].key for name in ("ApiVersions", "SaslHandshake", "SaslAuthenticate")}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI", "")
TOKENS = (
    b"\0alice\0wrong",
    b"\0alice\0b\0",
    b"alice\0alice",
    b"bob\0alice\0b",
    b"n,,n=alice,r=nonce",
    b"n,,n=alice,r=nonce,tokenauth=true",
    b"n,a=admin,n=alice,r=nonce",
    b"c=biws,r=nonce,p=" + base64.b64encode(bytes(32)),
    b"n,,\x01auth=Bearer e30.e30.\x01\x01",
    b"\x01",
    b"",
)
APIS = list(served())


def frame(name: str, rng: random.Random, **fields: object) -> bytes:
    """A request, whole, with its length before it."""
    return encoded(name, rng.randint(0, 1), **fields)


def encoded(name: str, version: int, **fields: object) -> bytes:
    """The same in this version."""
    api = BY_NAME[name]
    _, chunks = ClientConnection("fuzz").request(api.request(**fields), version)
    return b"".join(bytes(one) for one in chunks)


def any_request(rng: random.Random) -> bytes:
    """A request of some API in some version, as a client would send it."""
    api, version = rng.choice(APIS)
    _, chunks = ClientConnection("fuzz").request(request_of(api, version).body, version)
    return b"".join(bytes(one) for one in chunks)


def piece(rng: random.Random) -> bytes:
    """Something to send."""
    kind = rng.randrange(8)
    if kind < 2:
        return frame("SaslHandshake", rng, mechanism=rng.choice(MECHANISMS))
    if kind < 4:
        token = altered(rng.choice(TOKENS), rng) if rng.random() < 0.5 else rng.choice(TOKENS)
        if rng.random() < 0.3:
            return struct.pack(">i", len(token)) + token  # as after a handshake of version 0
        return frame("SaslAuthenticate", rng, auth_bytes=token)
    if kind == 4:
        return rng.randbytes(rng.randrange(200))
    if kind == 5:
        return struct.pack(">i", rng.choice([-1, 0, 1, 7, 524_288, 524_289, 1 << 30])) + rng.randbytes(
            rng.randrange(64)
        )
    whole = any_request(rng)
    return altered(whole, rng) if kind == 6 else whole


def altered(content: bytes, rng: random.Random) -> bytes:
    """The same with a byte changed, left out or put in, or without its end."""
    if not content:
        return b"\0"
    at = rng.randrange(len(content))
    return rng.choice(
        [
            content[:at],
            content[:at] + rng.randbytes(1) + content[at + 1 :],
            content[:at] + content[at + 1 :],
            content * 2,
        ]
    )


async def one(cluster: Cluster, rng: random.Random) -> None:
    """Send some pieces on a connection; return the received bytes once the broker closes."""
    reader, writer = await asyncio.open_connection(*cluster.address(1))
    try:
        for _ in range(rng.randint(1, 5)):
            writer.write(piece(rng))
        writer.write_eof()
        async with asyncio.timeout(30):
            received = await reader.read()
        assert len(received) < 65_536
    except ConnectionError:
        pass  # closed with something unread
    finally:
        writer.close()


HALF_FINISHED = 2000
EACH_BYTES_MAX = 150_000
"""What one of them may hold: it is 12 KB, and 70 KB with TLS. What asyncio makes for TLS alone would be 256 KB."""


@pytest.fixture
def many_files() -> Iterator[None]:
    """Both ends of all connections are in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < 2 * HALF_FINISHED + 500:
        pytest.skip(f"NOT TRIED WITH {HALF_FINISHED} CONNECTIONS: this process may have {hard} files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * HALF_FINISHED + 500), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def memory_bytes() -> int:
    """What this process has in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def hello() -> bytes:
    """How a client of TLS begins."""
    context, sent = ssl.create_default_context(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost").do_handshake()
    return sent.read()


async def half_finished(address: tuple[str, int], beginnings: list[bytes]) -> list[socket.socket]:
    """Connections that begin in these ways, each in its turn, and go no further."""
    loop = asyncio.get_running_loop()
    made = []
    for number in range(HALF_FINISHED):
        one = socket.socket()
        one.setblocking(False)
        made.append(one)
        await loop.sock_connect(one, address)
        await loop.sock_sendall(one, beginnings[number % len(beginnings)])
    return made


@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize("protocol", [LISTENER, "SASL_SSL"])
async def test_two_thousand_unfinished_logins_use_little_memory_and_delay_no_login(protocol: str) -> None:
    handshake_frame = encoded("SaslHandshake", 1, mechanism="SCRAM-SHA-256")
    beginnings = {
        LISTENER: [
            b"",
            handshake_frame[:9],
            handshake_frame,
            handshake_frame + encoded("SaslAuthenticate", 1, auth_bytes=b"n,,n=alice,r=nonce"),
            struct.pack(">i", 524_288) + b"claimed",
        ],
        "SASL_SSL": [b"", hello()[:5], hello()[:200], hello()],
    }[protocol]
    properties = {**PROPERTIES, **(files().properties if protocol == "SASL_SSL" else {})}
    properties = {name.replace(LISTENER.lower(), protocol.lower()): value for name, value in properties.items()}
    async with Cluster(1, listeners=[f"{protocol}://127.0.0.1:0"], properties=properties) as cluster:
        trusted = {"ssl_cafile": str(files().ca)} if protocol == "SASL_SSL" else {}
        security = make_security(
            security_protocol=protocol, sasl_plain_username="alice", sasl_plain_password="b", **trusted
        )
        server, known = cluster.nodes[1].server, cluster.nodes[1]._credentials
        idle = server.connection_count
        async with Admin(cluster.bootstrap_servers, security=security) as admin:
            await admin.set_password("alice", "b")
        await until(lambda: known is not None and known.of("SCRAM-SHA-256", "alice") is not None)
        await until(lambda: server.connection_count == idle)
        before = memory_bytes()
        made = await half_finished(cluster.address(1), beginnings)
        await until(lambda: server.connection_count == idle + HALF_FINISHED)
        assert (memory_bytes() - before) / HALF_FINISHED < EACH_BYTES_MAX
        assert server.request_memory.held_bytes < HALF_FINISHED * 100
        async with asyncio.timeout(20):
            await (await Connection.open(*cluster.address(1), client_id="test", security=security)).close()
        for one in made:
            one.close()
        await until(lambda: server.connection_count == idle)


async def test_requests_before_authentication_are_not_handled(caplog: pytest.LogCaptureFixture) -> None:
    async with Cluster(1, listeners=[f"{LISTENER}://127.0.0.1:0"], properties=PROPERTIES) as cluster:
        node = cluster.nodes[1]
        idle = node.server.connection_count
        before = dict(node.server.dispatcher.requests)
        for number in range(0, CONNECTIONS, 20):
            rngs = [random.Random(SEED * 1_000_003 + number + each) for each in range(20)]
            await asyncio.gather(*(one(cluster, rng) for rng in rngs))
        handled = {key for key, count in node.server.dispatcher.requests.items() if count != before[key]}
        internal = {BY_NAME[name].key for name in ("Fetch", "UpdateMetadata", "LeaderAndIsr", "ControlledShutdown")}
        assert handled - internal <= ALLOWED, "what was dispatched"
        assert set(node.services.metadata.image.topics) == set()
        await until(lambda: node.server.connection_count == idle)
        assert node.server.request_memory.held_bytes == 0
        assert not [record for record in caplog.records if "bug" in record.getMessage() or record.exc_info]
        security = make_security(security_protocol=LISTENER, sasl_plain_username="alice", sasl_plain_password="b")
        connection = await Connection.open(*cluster.address(1), client_id="test", security=security)
        await connection.close()


async def test_slow_unauthenticated_connection_is_closed() -> None:
    """Before authentication, activity does not keep a connection open: bytes of a frame, requests and handshakes."""
    properties = {**PROPERTIES, "connections.max.idle.ms": "1000"}
    handshake = encoded("SaslHandshake", 1, mechanism="PLAIN")
    slow = {
        "bytes of a frame": itertools.chain([struct.pack(">i", 1000)], itertools.repeat(b"x")),
        "whole requests": itertools.repeat(encoded("ApiVersions", 0)),
        "a handshake and no token": itertools.chain([handshake, struct.pack(">i", 1000)], itertools.repeat(b"x")),
    }
    async with asyncio.timeout(60), Cluster(1, listeners=[f"{LISTENER}://127.0.0.1:0"], properties=properties) as one:
        security = make_security(security_protocol=LISTENER, sasl_plain_username="alice", sasl_plain_password="b")
        served = await Connection.open(*one.address(1), client_id="test", security=security)
        closed: set[str] = set()

        async def send(name: str, pieces: Iterator[bytes]) -> None:
            reader, writer = await asyncio.open_connection(*one.address(1))
            hearing = asyncio.ensure_future(reader.read(-1))
            with contextlib.suppress(ConnectionError):
                while not hearing.done():
                    writer.write(next(pieces))
                    await writer.drain()
                    await asyncio.wait([hearing], timeout=0.1)
                    await served.call(ApiVersionsRequest(), version=0)
            with contextlib.suppress(ConnectionError):
                await hearing
            writer.close()
            closed.add(name)

        await asyncio.gather(*(send(name, pieces) for name, pieces in slow.items()))
        assert closed == set(slow)
        assert (await served.call(ApiVersionsRequest(), version=0)).api_keys, "who has logged in stays"
        await served.close()


async def test_replayed_scram_login_is_refused_on_another_connection() -> None:
    password, first_bare = "s3cret", "n=carol,r=clientnonce"
    first = b"n,," + first_bare.encode()
    async with asyncio.timeout(60), Cluster(1, listeners=[f"{LISTENER}://127.0.0.1:0"], properties=PROPERTIES) as one:
        known = one.nodes[1]._credentials
        security = make_security(security_protocol=LISTENER, sasl_plain_username="alice", sasl_plain_password="b")
        async with Admin(one.bootstrap_servers, security=security) as admin:
            await admin.set_password("carol", password, mechanisms=["SCRAM-SHA-256"])
        await until(lambda: known is not None and known.of("SCRAM-SHA-256", "carol") is not None)

        async def exchange(*tokens: Callable[[bytes], bytes]) -> list[SaslAuthenticateResponse]:
            connection = await Connection.open(*one.address(1), client_id="test")
            await connection.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), version=1)
            responses: list[SaslAuthenticateResponse] = []
            for token in tokens:
                heard = bytes(responses[-1].auth_bytes) if responses else b""
                responses.append(await connection.call(SaslAuthenticateRequest(auth_bytes=token(heard)), version=1))
            await connection.close()
            return responses

        recorded: list[bytes] = []

        def final(heard: bytes) -> bytes:
            nonce = heard.decode().partition(",")[0]
            recorded.append(proof(first_bare, heard, f"c=biws,{nonce}", password))
            return recorded[-1]

        honest = await exchange(lambda _: first, final)
        assert [one.error_code for one in honest] == [ErrorCode.NONE, ErrorCode.NONE]
        replayed = await exchange(lambda _: first, lambda _: recorded[0])
        assert [one.error_code for one in replayed] == [ErrorCode.NONE, ErrorCode.SASL_AUTHENTICATION_FAILED]
        assert replayed[0].auth_bytes != honest[0].auth_bytes, "the broker's nonce is another"
        (alone,) = await exchange(lambda _: recorded[0])
        assert alone.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
