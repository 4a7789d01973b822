"""Refusals on listeners with authentication, and on missing listeners."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from anabranch import Admin
from anabranch.clients.connection import Connection
from anabranch.clients.security_config import make_security
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from anabranch.protocol.apis.metadata import MetadataRequest
from anabranch.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from anabranch.protocol.apis.sasl_handshake import SaslHandshakeRequest
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.broker.authentication.test_listener_security import properties_of
from tests.broker.credentials import test_delegation_tokens
from tests.broker.handlers.authorization_rows import request_for
from tests.broker.handlers.authorizing import ALICE, PROPERTIES
from tests.contracts.error_codes import World, case


@case(ErrorCode.LISTENER_NOT_FOUND, alone=True)
async def leader_without_the_listener_of_the_client(world: World) -> Any:
    """Ask for metadata on a listener that the leader of a partition does not have."""
    both = ["PLAINTEXT://127.0.0.1:0", "OTHER://127.0.0.1:0"]
    properties = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT"}
    async with Cluster(2, listeners=both, properties=properties) as cluster:
        await cluster.stop_broker(2)
        await cluster.start_broker(2, {"listeners": "PLAINTEXT://127.0.0.1:0"})
        plain = await Connection.open("127.0.0.1", cluster.nodes[1].port, client_id="test")
        other = await Connection.open("127.0.0.1", cluster.nodes[1].server.ports["OTHER"], client_id="test")
        topic = CreatableTopic(name="t", num_partitions=4, replication_factor=1, assignments=[], configs=[])
        await plain.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        rows: list[Any] = []
        while len({row.error_code for row in rows}) < 2 or any(row.leader_id == 2 for row in rows):
            answer = await other.call(MetadataRequest(topics=None))
            rows = [row for topic in answer.topics for row in topic.partitions]
        await plain.close()
        await other.close()
        return answer


@case(ErrorCode.SASL_AUTHENTICATION_FAILED, alone=True)
async def login_with_a_wrong_password(world: World) -> Any:
    """Log in with a password that is not the user's."""
    listeners = ["SASL_PLAINTEXT://127.0.0.1:0"]
    async with Cluster(1, listeners=listeners, properties=properties_of("SASL_PLAINTEXT")) as cluster:
        host, port = cluster.address(1)
        connection = await Connection.open(host, port, client_id="test")
        handshake = await connection.call(SaslHandshakeRequest(mechanism="PLAIN"))
        assert handshake.error_code == ErrorCode.NONE
        answer = await connection.call(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"))
        await connection.close()
        return answer


async def asked_by_alice(api: str, **body: Any) -> Any:
    """The answer to a user who has no right at all."""
    async with Cluster(1, listeners=["SASL_PLAINTEXT://127.0.0.1:0"], properties=PROPERTIES) as cluster:
        connection = await Connection.open(*cluster.address(1), client_id="test", security=make_security(**ALICE))
        answer = await connection.call(request_for(api, body))
        await connection.close()
        return answer


@case(ErrorCode.TOPIC_AUTHORIZATION_FAILED, alone=True)
async def topic_without_a_right(world: World) -> Any:
    """Ask for the metadata of a topic, there or not, without the right to describe it."""
    return await asked_by_alice("Metadata", topics=[{"name": "t"}])


@case(ErrorCode.GROUP_AUTHORIZATION_FAILED, alone=True)
async def group_without_a_right(world: World) -> Any:
    """Join a group without the right to read it."""
    return await asked_by_alice("JoinGroup", group_id="g", session_timeout_ms=6000, protocol_type="consumer")


@case(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, alone=True)
async def cluster_without_a_right(world: World) -> Any:
    """Ask for an idempotent producer's id without a right to write to any topic."""
    return await asked_by_alice("InitProducerId", transactional_id=None, producer_id=-1, producer_epoch=-1)


async def about_a_token(ask: Callable[[Admin, Admin], Awaitable[Any]], **properties: str) -> Any:
    """The code with which a request of alice's is refused, or of bob's."""
    listeners, given = (
        [f"{test_delegation_tokens.LISTENER}://127.0.0.1:0"],
        {**test_delegation_tokens.PROPERTIES, **properties},
    )
    async with (
        Cluster(1, listeners=listeners, properties=given) as cluster,
        Admin(cluster.bootstrap_servers, **test_delegation_tokens.ALICE) as alice,
        Admin(cluster.bootstrap_servers, **test_delegation_tokens.BOB) as bob,
    ):
        try:
            return await ask(alice, bob)
        except KafkaError as refused:
            return refused.code


@case(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, alone=True)
async def tokens_without_a_key(world: World) -> Any:
    """Ask for a token where delegation.token.secret.key is not set."""
    return await about_a_token(lambda alice, _: alice.create_token(), **{"delegation.token.secret.key": ""})


@case(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, alone=True)
async def renewal_of_an_unknown_token(world: World) -> Any:
    """Renew a token that there is not."""
    return await about_a_token(lambda alice, _: alice.renew_token("AAAA"))


@case(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, alone=True)
async def renewal_of_the_token_of_another(world: World) -> Any:
    """Renew a token without being its owner or a renewer."""

    async def ask(alice: Admin, bob: Admin) -> Any:
        return await bob.renew_token((await alice.create_token()).secret)

    return await about_a_token(ask)


@case(ErrorCode.DELEGATION_TOKEN_EXPIRED, alone=True)
async def renewal_of_an_expired_token(world: World) -> Any:
    """Renew a token after its time."""

    async def ask(alice: Admin, _: Admin) -> Any:
        token = await alice.create_token()
        await alice.expire_token(token.secret, 1)
        while True:
            await alice.expire_token(token.secret, 1)

    return await about_a_token(ask)


@case(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, alone=True)
async def token_in_the_name_of_another(world: World) -> Any:
    """Ask for a token of another owner without the right to."""
    return await about_a_token(lambda alice, _: alice.create_token(owner="User:bob"))


@case(ErrorCode.INVALID_PRINCIPAL_TYPE, alone=True)
async def token_with_a_renewer_that_is_no_user(world: World) -> Any:
    """Ask for a token with a renewer whose type is not User."""
    return await about_a_token(lambda alice, _: alice.create_token(renewers=["Group:all"]))
