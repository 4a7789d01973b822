"""A token authenticates its owner at every broker, from its creation to its end.

Method: brokers over TCP with SCRAM and clients of our own; then the tokens alone, with a clock in hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from anabranch import Admin, Consumer, NewTopic, Producer
from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.credentials.delegation_tokens import ID_BYTES, Tokens, new_id, tokens_of
from anabranch.broker.tasks.supervised_task import log_failure
from anabranch.clients.authentication import AuthenticationFailed
from anabranch.clients.connection import Connection
from anabranch.clients.security import SecurityArguments
from anabranch.clients.security_config import make_security
from anabranch.cluster.in_process import Cluster
from anabranch.controller.zk import token_znodes
from anabranch.controller.zk.memory import MemoryZooKeeper
from anabranch.controller.zk.token_znodes import Token
from anabranch.protocol.acls import Acl, Operation, Permission, ResourcePattern, ResourceType
from anabranch.protocol.apis.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.broker.handlers.authorizing import AUTHORIZER
from tests.broker.serving import until
from tests.secured.certificates import SCRAM_MODULE, plain_users

LISTENER = "SASL_PLAINTEXT"
KEY = {"delegation.token.secret.key": "of all brokers"}
PROPERTIES = {
    **plain_users(LISTENER, admin="a", alice="b", bob="c"),
    **AUTHORIZER,
    **KEY,
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    f"listener.name.{LISTENER.lower()}.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
}
HOUR_MS = 3_600_000


def by_password(user: str, password: str) -> SecurityArguments:
    return {"security_protocol": LISTENER, "sasl_plain_username": user, "sasl_plain_password": password}


def by_token(token: Any, mechanism: str = "SCRAM-SHA-512") -> SecurityArguments:
    return {
        "security_protocol": LISTENER,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": token.token_id,
        "sasl_plain_password": token.secret,
        "sasl_delegation_token": True,
    }


ADMIN, ALICE, BOB = by_password("admin", "a"), by_password("alice", "b"), by_password("bob", "c")


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(2, listeners=[f"{LISTENER}://127.0.0.1:0"], properties=PROPERTIES) as one:
        yield one


async def everywhere(cluster: Cluster, token_id: str, known: bool = True) -> None:
    found = [node.services.tokens for node in cluster.nodes.values()]
    await until(lambda: all(one is not None and (one.find(token_id) is not None) is known for one in found))


async def principal_of(cluster: Cluster, node: int, arguments: SecurityArguments) -> str:
    """Return a client's principal, as a broker authenticates it."""
    connection = await Connection.open(*cluster.address(node), client_id="test", security=make_security(**arguments))
    try:
        return next(reversed(cluster.nodes[node].server._connections)).peer.principal
    finally:
        await connection.close()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_token_authenticates_its_owner_at_every_broker(cluster: Cluster, mechanism: str) -> None:
    servers = cluster.bootstrap_servers
    async with Admin(servers, **ADMIN) as admin, Admin(servers, **ALICE) as alice:
        token = await alice.create_token(max_lifetime_ms=HOUR_MS)
        assert token.expires_ms - token.issued_ms == token.max_ms - token.issued_ms == HOUR_MS
        assert token.secret not in repr(token)
        await everywhere(cluster, token.token_id)
        for node in (1, 2):
            assert await principal_of(cluster, node, by_token(token, mechanism)) == "User:alice"
        await admin.create_topics([NewTopic(name="t")])
        topic, group = ResourcePattern(ResourceType.TOPIC, "t"), ResourcePattern(ResourceType.GROUP, "g")
        rights = [(topic, Operation.WRITE), (topic, Operation.READ), (group, Operation.READ)]
        await admin.create_acls([(one, Acl("User:alice", "*", what, Permission.ALLOW)) for one, what in rights])
        async with Producer(servers, **by_token(token, mechanism)) as producer:
            await producer.send_and_wait("t", b"value")
        bearing = by_token(token, mechanism)
        reading = Consumer("t", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest", **bearing)
        async with reading as consumer:
            assert (await anext(consumer)).value == b"value"
        async with Admin(servers, **by_token(token, mechanism)) as bearer:
            with pytest.raises(KafkaError) as refused:
                await bearer.create_token()
            assert refused.value.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        await alice.expire_token(token.secret)
        await everywhere(cluster, token.token_id, known=False)
        with pytest.raises(AuthenticationFailed):
            await principal_of(cluster, 1, by_token(token, mechanism))


async def test_token_id_without_its_secret_is_refused(cluster: Cluster) -> None:
    async with Admin(cluster.bootstrap_servers, **ALICE) as alice:
        token = await alice.create_token()
        await everywhere(cluster, token.token_id)
        for wrong in (
            {**by_token(token), "sasl_plain_password": "guessed"},
            {**by_token(token), "sasl_plain_username": "alice"},
            {**by_token(token), "sasl_delegation_token": False},
        ):
            with pytest.raises(AuthenticationFailed):
                await principal_of(cluster, 1, wrong)  # type: ignore[arg-type]


async def test_token_is_visible_and_changeable_by_owner_renewers_and_acl(cluster: Cluster) -> None:
    servers = cluster.bootstrap_servers
    async with Admin(servers, **ADMIN) as admin, Admin(servers, **ALICE) as alice, Admin(servers, **BOB) as bob:
        with pytest.raises(KafkaError) as refused:
            await bob.create_token(owner="User:alice")
        assert refused.value.code is ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        right = Acl("User:bob", "*", Operation.CREATE_TOKENS, Permission.ALLOW)
        await admin.create_acls([(ResourcePattern(ResourceType.USER, "User:alice"), right)])
        for node in cluster.nodes.values():
            authorizer = node.services.authorizer
            assert authorizer is not None
            await until(lambda authorizer=authorizer: bool(authorizer.acls))
        token = await bob.create_token(owner="User:alice")
        assert (token.owner, token.requester) == ("User:alice", "User:bob")
        await everywhere(cluster, token.token_id)
        assert await principal_of(cluster, 2, by_token(token)) == "User:alice"
        for one, sees in ((alice, 1), (bob, 1), (admin, 1)):
            assert len(await one.describe_tokens()) == sees
        assert [one.token_id for one in await admin.describe_tokens(["User:bob"])] == [token.token_id]
        assert await admin.describe_tokens(["User:admin"]) == await admin.describe_tokens([]) == []
        with pytest.raises(KafkaError) as refused:
            await bob.renew_token(token.secret)
        assert refused.value.code is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, "who has asked for it may not"
        assert await alice.renew_token(token.secret, HOUR_MS) < token.expires_ms
        other = await alice.create_token(renewers=["User:bob"])
        await everywhere(cluster, other.token_id)
        await bob.expire_token(other.secret, HOUR_MS)
        secret = Admin(servers, **by_password("bob", "c"))
        async with secret as third:
            assert {one.token_id for one in await third.describe_tokens()} == {token.token_id, other.token_id}


async def test_invalid_token_requests_are_refused(cluster: Cluster) -> None:
    async with Admin(cluster.bootstrap_servers, **ALICE) as alice:
        with pytest.raises(KafkaError) as refused:
            await alice.renew_token("AAAA")
        assert refused.value.code is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        with pytest.raises(ValueError, match="write User:bob"):
            await alice.create_token(renewers=["bob"])
    connection = await Connection.open(*cluster.address(1), client_id="test", security=make_security(**ALICE))
    renewer = CreatableRenewers(principal_type="Group", principal_name="x")
    answer = await connection.call(CreateDelegationTokenRequest(renewers=[renewer], max_lifetime_ms=-1))
    assert (answer.error_code, answer.token_id, answer.hmac) == (ErrorCode.INVALID_PRINCIPAL_TYPE, "", b"")
    await connection.close()


async def test_tokens_are_disabled_without_a_secret_key() -> None:
    properties = {name: text for name, text in PROPERTIES.items() if name not in KEY}
    async with (
        Cluster(1, listeners=[f"{LISTENER}://127.0.0.1:0"], properties=properties) as cluster,
        Admin(cluster.bootstrap_servers, **ALICE) as alice,
    ):
        for refused in (alice.create_token(), alice.describe_tokens(), alice.renew_token("AAAA")):
            with pytest.raises(KafkaError) as error:
                await refused
            assert error.value.code is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


# --- the tokens alone


class Clock:
    now_ms = 1_000_000


async def alone(
    zookeeper: MemoryZooKeeper, clock: Clock, is_controller: Callable[[], bool] = lambda: False, sweep_s: float = 3600
) -> Tokens:
    tokens = Tokens("key", lambda: clock.now_ms, lifetime_max_ms=1000, renewal_ms=100, sweep_s=sweep_s)
    await tokens.watch(await zookeeper.connect(), is_controller, log_failure)
    return tokens


async def test_token_expires_unless_renewed_and_at_its_max_lifetime() -> None:
    clock = Clock()
    tokens = await alone(MemoryZooKeeper(), clock)
    token = await tokens.create("User:a", "User:a", (), 5000)
    assert (token.expires_ms, token.max_ms) == (1_000_100, 1_001_000)
    secret = tokens.hmac_of(token.token_id)
    assert await tokens.renew(secret, "User:a", 300) == 1_000_300
    assert await tokens.renew(secret, "User:a", 10_000) == 1_001_000
    assert await tokens.expire(secret, "User:a", 50) == 1_000_050
    clock.now_ms += 60
    for late in (tokens.renew(secret, "User:a", -1), tokens.expire(secret, "User:a", 10)):
        with pytest.raises(KafkaError) as refused:
            await late
        assert refused.value.code is ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert await tokens.expire(secret, "User:a", -1) == clock.now_ms, "it can be removed even then"
    assert list(tokens.all) == []
    await tokens.stop()


async def test_active_controller_removes_expired_tokens() -> None:
    clock, zookeeper, active = Clock(), MemoryZooKeeper(), [False]
    controller = await alone(zookeeper, clock, lambda: active[0], sweep_s=0.01)
    other = await alone(zookeeper, clock)
    gone = await other.create("User:a", "User:a", (), -1)
    await until(lambda: controller.find(gone.token_id) is not None)
    clock.now_ms += 500
    kept = await other.create("User:a", "User:a", (), -1)
    for _ in range(5):
        await asyncio.sleep(0.01)
    assert controller.find(gone.token_id) is not None, "only the active controller does it"
    active[0] = True
    await until(lambda: other.find(gone.token_id) is None)
    assert other.find(kept.token_id) == kept
    await controller.stop()
    await other.stop()


async def test_tokens_written_by_kafka_are_read_and_malformed_ones_skipped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    zookeeper = MemoryZooKeeper()
    session = await zookeeper.connect()
    kafkas = (
        b'{"version":1,"owner":"User%3Aalice","renewers":["User%3Abob"],"issueTimestamp":1,"maxTimestamp":3,'
        b'"expiryTimestamp":2,"tokenId":"first"}'
    )
    await session.create(token_znodes.path_of("first"), kafkas, make_parents=True)
    await session.create(token_znodes.path_of("bad"), b'{"version":9}')
    tokens = await alone(zookeeper, Clock())
    expected = Token(
        token_id="first",
        owner="User:alice",
        requester="User:alice",
        renewers=("User:bob",),
        issued_ms=1,
        expires_ms=2,
        max_ms=3,
    )
    assert list(tokens.all) == [expected]
    assert "version 9 is not one of 1 to 3" in caplog.text
    assert token_znodes.decode("p", token_znodes.encode(expected)) == expected
    await tokens.stop()


def test_secret_key_is_accepted_under_both_property_names() -> None:
    for name in ("delegation.token.secret.key", "delegation.token.master.key"):
        tokens = tokens_of(BrokerSettings(given={name: "k"}), lambda: 0)
        assert tokens is not None
        assert len(tokens.hmac_of("id")) == 64
    assert tokens_of(BrokerSettings(), lambda: 0) is None


def test_token_id_does_not_start_with_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    """An id that began with a dash broke `anabranch tokens renew`."""
    drawn = iter([b"\xf8" * ID_BYTES, b"\xfb" * ID_BYTES, b"a" * ID_BYTES])
    monkeypatch.setattr("anabranch.broker.credentials.delegation_tokens.secrets.token_bytes", lambda count: next(drawn))
    assert new_id() == "YWFhYWFhYWFhYWFhYWFhYQ"
    assert next(drawn, None) is None
