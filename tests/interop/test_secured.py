"""Common clients authenticate on every kind of listener, and fail with wrong secrets.

Method: three brokers that talk to each other over SASL_SSL, with a listener of every protocol. Each client, in a
process of its own, which takes with it what the client leaves open, produces and consumes a record by each door, with
the right secret and with a wrong one. `make test` tries the clients in Python, `make interop` all of them.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from anabranch import Admin, NewTopic
from anabranch.cluster.in_process import Cluster
from tests.broker.serving import until
from tests.interop.clients import CLIENTS, TOKEN, TOKEN_ENDPOINT, Client
from tests.secured.certificates import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE, Files, files
from tests.secured.issuer import Issuer, TokenEndpoint, jwks

WHOLE = bool(os.environ.get("ANABRANCH_INTEROP"))
PASSWORD = "wonderland"
LISTENERS = ("PLAINTEXT", "SSL", "MUTUAL", "SASL_PLAINTEXT", "SASL_SSL")
VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
PATIENCE_S = 5.0
"""How long a client is to try a door that is shut to it: some try until they are told to stop."""
REFUSED = re.compile("authentication|ssl|certificate|closed|oauth|401|unable to bootstrap", re.IGNORECASE)
"""What they say then: some, that they have tried for long enough, or that the connection was closed."""

pytestmark = pytest.mark.interop


def properties(keys: Path) -> dict[str, str]:
    """Three brokers with every listener; brokers log in as admin."""
    plain = f'{PLAIN_MODULE} required username="admin" password="a" user_admin="a" user_alice="{PASSWORD}";'
    given = {
        **files().properties,
        "listener.security.protocol.map": ",".join(f"{one}:{protocol_of(one)}" for one in LISTENERS),
        "listener.name.mutual.ssl.client.auth": "required",
        "inter.broker.listener.name": "SASL_SSL",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        prefix = f"listener.name.{listener}"
        given[f"{prefix}.plain.sasl.jaas.config"] = plain
        given[f"{prefix}.scram-sha-256.sasl.jaas.config"] = f"{SCRAM_MODULE} required;"
        given[f"{prefix}.oauthbearer.sasl.jaas.config"] = f"{OAUTH_MODULE} required;"
        given[f"{prefix}.oauthbearer.sasl.server.callback.handler.class"] = VALIDATOR
    return given


def protocol_of(listener: str) -> str:
    """MUTUAL is a name of our own."""
    return "SSL" if listener == "MUTUAL" else listener


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
async def cluster(tmp_path: Path, issuer: Issuer) -> AsyncIterator[Cluster]:
    """The cluster, with the topic and the user."""
    keys = tmp_path / "keys.json"
    keys.write_text(jwks(issuer))
    addresses = [f"{one}://127.0.0.1:0" for one in LISTENERS]
    async with Cluster(3, listeners=addresses, properties=properties(keys)) as cluster:
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic(name="t", partitions=2, replication_factor=3)])
            await admin.set_password("alice", PASSWORD)
            known = [node._credentials for node in cluster.nodes.values()]
            await until(lambda: all(one is not None and one.of("SCRAM-SHA-512", "alice") for one in known))
        yield cluster


def doors(cluster: Cluster, token: str, endpoint: str) -> dict[str, dict[str, Any]]:
    """Those that open, by name."""

    def door(listener: str, **more: Any) -> dict[str, Any]:
        ca = {"ca": str(files().ca)} if protocol_of(listener).endswith("SSL") else {}
        servers = cluster.bootstrap_servers_of(listener)
        return {"servers": servers, "protocol": protocol_of(listener), **ca, **more}

    found = {
        "TLS": door("SSL"),
        "TLS with a certificate": door("MUTUAL", identity=str(files().identity("alice"))),
    }
    for listener in ("SASL_PLAINTEXT", "SASL_SSL"):
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            login = {"mechanism": mechanism, "user": "alice", "password": PASSWORD}
            found[f"{mechanism} {listener}"] = door(listener, **login)
        found[f"{TOKEN} {listener}"] = door(listener, mechanism="OAUTHBEARER", token=token)
        fetching = {"user": "alice", "password": PASSWORD, "token_url": endpoint}
        found[f"{TOKEN_ENDPOINT} {listener}"] = door(listener, mechanism="OAUTHBEARER", **fetching)
    return found


def shut(open_: dict[str, dict[str, Any]], stranger: Path) -> dict[str, dict[str, Any]]:
    """Those that do not."""
    wrong = {
        "TLS of a stranger": {**open_["TLS"], "ca": str(stranger)},
        "no certificate": {**open_["TLS with a certificate"], "identity": None},
        "PLAIN guessed": {**open_["PLAIN SASL_SSL"], "password": "guessed"},
        "SCRAM-SHA-256 guessed": {**open_["SCRAM-SHA-256 SASL_PLAINTEXT"], "password": "guessed"},
        "SCRAM-SHA-512 guessed": {**open_["SCRAM-SHA-512 SASL_SSL"], "password": "guessed"},
        f"{TOKEN} of a stranger": {**open_[f"{TOKEN} SASL_PLAINTEXT"], "token": Issuer().token(time.time())},
        f"{TOKEN_ENDPOINT} guessed": {**open_[f"{TOKEN_ENDPOINT} SASL_SSL"], "password": "guessed"},
    }
    return {name: {**door, "patience_s": PATIENCE_S} for name, door in wrong.items()}


def lacking(client: Client, name: str) -> bool:
    """Whether the client has no such way in."""
    return any(name.startswith(one) and one in client.lacks for one in (TOKEN_ENDPOINT, TOKEN))


def tried(client: Client, ways: dict[str, dict[str, Any]]) -> dict[str, str]:
    """The result of each listener: empty for success, else the error."""
    with client.run("doors", topic="t", doors=[{"name": name, **door} for name, door in ways.items()]) as driver:
        driver.finish(60 + 60 * len(ways))
        return {one["door"]: one.get("error", "") for one in driver.told("in", "out")}


@pytest.mark.parametrize(
    "client",
    [
        pytest.param(one, id=one.name, marks=() if number == 0 else pytest.mark.costly)
        for number, one in enumerate(one for one in CLIENTS if one.python or WHOLE)
    ],
)
async def test_client_authenticates_with_right_secret_only(
    cluster: Cluster, client: Client, issuer: Issuer, tmp_path: Path
) -> None:
    if client.absent:
        pytest.skip(f"ABSENT: {client.absent}")
    token = issuer.token(time.time(), exp=time.time() + 3600)
    (tmp_path / "stranger").mkdir()
    with TokenEndpoint(issuer, {"alice": PASSWORD}) as endpoint:
        every = doors(cluster, token, endpoint.url)
        opening = {name: door for name, door in every.items() if not lacking(client, name)}
        strangers = shut(every, Files(tmp_path / "stranger").ca)
        closed = {name: door for name, door in strangers.items() if not lacking(client, name)}
        answers = await asyncio.to_thread(tried, client, opening | closed)
    assert {name: answers[name] for name in opening} == dict.fromkeys(opening, "")
    assert set(answers) == {*opening, *closed}
    strange = {name: answers[name] for name in closed if not REFUSED.search(answers[name])}
    assert not strange
