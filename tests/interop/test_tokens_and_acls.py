"""librdkafka authenticates with a signed token, and its ACLs take effect as in Kafka.

Method: one broker whose listener takes signed tokens, and an authorizer; the client is told nothing of either.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from anabranch import Admin, NewTopic
from anabranch.clients.security import SecurityArguments
from anabranch.cluster.in_process import Cluster
from tests.broker.authentication.test_listener_security import signed_properties
from tests.secured.issuer import Issuer

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:broker",
}
ISSUER = Issuer("RS256")


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    properties = signed_properties(tmp_path, ISSUER, **AUTHORIZER)
    async with Cluster(1, listeners=["SASL_PLAINTEXT://127.0.0.1:0"], properties=properties) as one:
        token: SecurityArguments = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": lambda: ISSUER.token(time.time(), sub="broker"),
        }
        async with Admin(one.bootstrap_servers, **token) as admin:
            await admin.create_topics([NewTopic(name="t")])
        yield one


def of(user: str, servers: str) -> dict[str, Any]:
    """The configuration of a client that has a token of this user."""
    return {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "OAUTHBEARER",
        "oauth_cb": lambda _: (ISSUER.token(time.time(), sub=user), time.time() + 60),
    }


def sent(config: dict[str, Any]) -> str:
    """How a record fared: empty, or the name of the error."""
    from confluent_kafka import Producer

    outcome: list[str] = []
    producer = Producer(config)
    producer.produce("t", b"value", callback=lambda error, _: outcome.append("" if error is None else error.name()))
    producer.flush(20)
    return outcome[0] if outcome else "nothing in 20 s"


def read(config: dict[str, Any]) -> str:
    """The first record, or the name of the error."""
    from confluent_kafka import Consumer

    consumer = Consumer({**config, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    try:
        record = consumer.poll(20)
        if record is None:
            return "nothing in 20 s"
        error = record.error()
        return str((record.value() or b"").decode() if error is None else error.name())
    finally:
        consumer.close()


def story(servers: str) -> None:
    """Alice's operations before and after the ACLs."""
    from confluent_kafka import admin as kinds
    from confluent_kafka.admin import AclBinding, AclBindingFilter, AclOperation, AclPermissionType, AdminClient

    alice, boss = of("alice", servers), of("broker", servers)
    assert sent(alice) == "TOPIC_AUTHORIZATION_FAILED"
    assert read(alice) in ("TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED")
    administrator = AdminClient(boss)

    def entry(kind: Any, name: str, operation: Any) -> AclBinding:
        literal = kinds.ResourcePatternType.LITERAL
        return AclBinding(kind, name, literal, "User:alice", "*", operation, AclPermissionType.ALLOW)

    topic, group = kinds.ResourceType.TOPIC, kinds.ResourceType.GROUP
    entries = [
        entry(topic, "t", AclOperation.WRITE),
        entry(topic, "t", AclOperation.READ),
        entry(group, "g", AclOperation.READ),
    ]
    for outcome in administrator.create_acls(entries).values():
        outcome.result(20)
    assert sent(alice) == ""
    assert read(alice) == "value"
    every = AclBindingFilter(
        kinds.ResourceType.ANY, None, kinds.ResourcePatternType.ANY, "User:alice", None, AclOperation.ANY,
        AclPermissionType.ANY,
    )  # fmt: skip
    assert len(administrator.describe_acls(every).result(20)) == 3
    (gone,) = administrator.delete_acls([every]).values()
    assert len(gone.result(20)) == 3
    assert sent(alice) == "TOPIC_AUTHORIZATION_FAILED"


async def test_user_with_token_gains_and_loses_rights(cluster: Cluster) -> None:
    pytest.importorskip("confluent_kafka")
    await asyncio.get_running_loop().run_in_executor(None, story, cluster.bootstrap_servers)


async def test_token_of_another_issuer_is_refused(cluster: Cluster) -> None:
    from confluent_kafka import Producer

    config = of("alice", cluster.bootstrap_servers)
    stranger = Issuer("RS256")
    failures: list[Any] = []
    config |= {
        "oauth_cb": lambda _: (stranger.token(time.time()), time.time() + 60),
        "error_cb": failures.append,
    }

    def refused() -> str:
        producer = Producer(config)
        producer.produce("t", b"value")
        while not failures or failures[0].name() != "_AUTHENTICATION":
            producer.flush(0.1)
        producer.purge()
        return str(failures[0].str())

    text = await asyncio.get_running_loop().run_in_executor(None, refused)
    assert "invalid_token" in text
