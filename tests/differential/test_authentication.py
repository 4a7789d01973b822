"""Authentication gets Kafka's responses, byte for byte where Kafka fixes them.

Method: the stories of `logins` told to Kafka 3.9 and to a broker of ours with the same listeners, users and keys; what
each connection heard is compared line by line. Each difference is known with its reason, and they are few.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from anabranch import Admin
from anabranch.broker.dispatch.version_ranges import FIRST_PRIVATE_KEY
from anabranch.clients.authentication import AuthenticationFailed
from anabranch.clients.security import SecurityArguments
from anabranch.clients.token_admin import DelegationToken
from anabranch.cluster.in_process import Cluster
from anabranch.runtime.sockets import free_ports
from tests.differential.dialogue import DELAY_MS, Heard, Talk
from tests.differential.kafka_server import JVM_OPTIONS, KafkaCluster, why_absent
from tests.differential.logins.story import PASSWORD, SESSION_S, STORIES, Story
from tests.differential.logins.tls import strangers
from tests.secured.certificates import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE, files
from tests.secured.issuer import Issuer, jwks

pytestmark = [pytest.mark.kafka_jars, pytest.mark.processes]
SHARE_LEAST: Final = 0.97
AT_ONCE: Final = 4
LISTENERS: Final = {
    "ALL": "SASL_PLAINTEXT",
    "SIGNED": "SASL_PLAINTEXT",
    "SHORT": "SASL_PLAINTEXT",
    "TLS": "SSL",
    "MUTUAL": "SSL",
}
VALIDATOR: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"


@dataclass(frozen=True, slots=True)
class Known:
    """A difference that is understood: a pattern over "story what Kafka's", and why."""

    pattern: str
    why: str


KNOWN: Final[tuple[Known, ...]] = (
    Known(
        r"(scram_logins (9|19)|delegation_tokens (2|9))\.2:",
        "several extensions of SCRAM are signed in the order of Kafka's hash table, not as the client has sent them",
    ),
    Known(
        r"unsigned_tokens (40|41|56|57)\.1:",
        "Kafka fails at a header that is no object or has no `alg`; to us the token is invalid, like others",
    ),
    Known(
        r"(every_api_before_the_login \d+\.2|renewed_out_of_order 0\.3):",
        "in the midst of a login nothing else is decoded: what Kafka refuses row by row has one code here, or none",
    ),
    Known(
        r"tls (1|4|7|10)\.0:", "Java and OpenSSL have different alerts for a certificate that is missing or untrusted"
    ),
)


NOTHING: Final[Heard] = ("", "nothing")


def properties(keys: Path) -> dict[str, str]:
    """Of both brokers."""
    plain = f'{PLAIN_MODULE} required user_alice="{PASSWORD}" user_bob="builder";'
    protocols = {"PLAINTEXT": "PLAINTEXT", **LISTENERS}
    given = {
        **files().properties,
        "listener.security.protocol.map": ",".join(f"{name}:{one}" for name, one in protocols.items()),
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.all.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.signed.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.short.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.short.plain.connections.max.reauth.ms": str(int(SESSION_S * 1000)),
        "listener.name.short.scram-sha-256.connections.max.reauth.ms": str(int(SESSION_S * 1000)),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.signed.oauthbearer.sasl.server.callback.handler.class": VALIDATOR,
        "listener.name.signed.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "listener.name.signed.oauthbearer.sasl.oauthbearer.expected.audience": "kafka",
        "listener.name.signed.oauthbearer.sasl.oauthbearer.expected.issuer": "https://issuer.example",
        "listener.name.signed.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "listener.name.signed.sasl.oauthbearer.expected.audience": "kafka",
        "listener.name.signed.sasl.oauthbearer.expected.issuer": "https://issuer.example",
        "connection.failed.authentication.delay.ms": str(DELAY_MS),
        "delegation.token.secret.key": "a secret",
        "offsets.topic.replication.factor": "1",
    }
    for listener in ("all", "short", "signed"):
        prefix = f"listener.name.{listener}"
        given[f"{prefix}.plain.sasl.jaas.config"] = plain
        given[f"{prefix}.scram-sha-256.sasl.jaas.config"] = f"{SCRAM_MODULE} required;"
        given[f"{prefix}.scram-sha-512.sasl.jaas.config"] = f"{SCRAM_MODULE} required;"
        options = 'unsecuredLoginStringClaim_sub="broker"' if listener == "all" else ""
        given[f"{prefix}.oauthbearer.sasl.jaas.config"] = f"{OAUTH_MODULE} required {options};"
    return given


@contextlib.asynccontextmanager
async def kafka(keys: Path) -> AsyncIterator[dict[str, int]]:
    """Kafka's broker: listener -> port."""
    ports = dict(zip(LISTENERS, free_ports("127.0.0.1", len(LISTENERS)), strict=True))
    listeners = [f"{name}://127.0.0.1:{port}" for name, port in ports.items()]
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys.as_uri()}"
    cluster = KafkaCluster(properties=properties(keys), listeners=listeners, jvm_options=[*JVM_OPTIONS, allowed])
    async with cluster:
        yield {"PLAINTEXT": cluster.addresses[1][1], **ports}


@contextlib.asynccontextmanager
async def ours(keys: Path) -> AsyncIterator[tuple[dict[str, int], dict[int, int]]]:
    """Our broker: listener -> port, and API -> version in which it is asked."""
    listeners = [f"{name}://127.0.0.1:0" for name in ("PLAINTEXT", *LISTENERS)]
    async with Cluster(1, listeners=listeners, properties=properties(keys)) as cluster:
        served = cluster.nodes[1].server.dispatcher.audiences.ranges_for("rdkafka").advertised
        yield (
            {name: int(cluster.bootstrap_servers_of(name).rpartition(":")[2]) for name in ("PLAINTEXT", *LISTENERS)},
            {key: last for key, (_, last) in served.items() if key < FIRST_PRIVATE_KEY},
        )


async def a_token(port: int) -> DelegationToken:
    """A delegation token of alice, who has just become a user."""
    alice: SecurityArguments = {"sasl_plain_username": "alice", "sasl_plain_password": PASSWORD}
    async with asyncio.timeout(60):
        while True:
            try:
                async with Admin(
                    f"127.0.0.1:{port}", security_protocol="SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-512", **alice
                ) as admin:
                    return await admin.create_token()
            except AuthenticationFailed:
                pass


async def told(
    ports: Mapping[str, int], served: Mapping[int, int], shared: Mapping[str, Any], stories: list[Story]
) -> dict[str, list[list[Heard]]]:
    """All stories, told to one broker."""
    async with Admin(f"127.0.0.1:{ports['PLAINTEXT']}") as admin:
        for user in ("alice", "a,b=c"):
            await admin.set_password(user, PASSWORD)
    token = await a_token(ports["ALL"])
    heard: dict[str, list[list[Heard]]] = {}
    places = asyncio.Semaphore(AT_ONCE)

    async def tell(one: Story) -> None:
        talk = Talk(ports, served, {**shared, "token": (token.token_id, token.secret)})
        async with places:
            try:
                await one(talk)
            except Exception as error:
                talk.note("the story ended", f"{type(error).__name__}: {error}")
        heard[one.__name__] = talk.heard

    await asyncio.gather(*map(tell, stories))
    return heard


def differences(theirs: dict[str, list[list[Heard]]], mine: dict[str, list[list[Heard]]]) -> tuple[int, list[str]]:
    """How many lines were compared, and those that differ."""
    asked, different = 0, []
    for name, connections in theirs.items():
        for number, (one, other) in enumerate(itertools.zip_longest(connections, mine[name], fillvalue=[])):
            asked += max(len(one), len(other))
            for place, (line, counterpart) in enumerate(itertools.zip_longest(one, other, fillvalue=NOTHING)):
                if line != counterpart:
                    different.append(f"{name} {number}.{place}: Kafka {line}, ours {counterpart}")
                    break  # what follows, follows from that
    return asked, different


async def both(stories: list[Story]) -> tuple[int, list[str]]:
    """The stories, told to both."""
    issuer, other = Issuer(), Issuer(key_id="two", algorithm="RS256")
    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder) / "keys.json"
        keys.write_text(jwks(issuer, other))
        shared = {"issuer": issuer, "other": other, "stranger": strangers()}
        async with kafka(keys) as theirs, ours(keys) as (mine, served):
            heard = await asyncio.gather(told(theirs, served, shared, stories), told(mine, served, shared, stories))
            return differences(*heard)


async def test_a_login_is_answered_as_by_kafka(capsys: pytest.CaptureFixture[str]) -> None:
    if reason := why_absent():
        pytest.skip(f"NOT COMPARED WITH KAFKA: {reason}")
    asked, different = await both(STORIES)
    with capsys.disabled():
        print(f"\n{asked} answers to logins, {1 - len(different) / asked:.1%} equal")
    unknown = [one for one in different if not any(re.match(row.pattern, one) for row in KNOWN)]
    assert unknown == [], "\n".join(unknown)
    assert not [row for row in KNOWN if not any(re.match(row.pattern, one) for one in different)], "gone"
    assert asked > 500 and 1 - len(different) / asked >= SHARE_LEAST
