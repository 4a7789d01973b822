"""kafka-acls, kafka-delegation-tokens and kafka-configs work on a secured cluster as on Kafka.

Method: Kafka's tools, where its jars are at hand, as an administrator, as a user and as the bearer of a token.
"""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from anabranch.cluster.in_process import Cluster
from anabranch.spark_jobs import java
from tests.broker.credentials.test_delegation_tokens import LISTENER, PROPERTIES
from tests.differential.kafka_server import VARIABLE, why_absent
from tests.secured.certificates import PLAIN_MODULE, SCRAM_MODULE

pytestmark = [pytest.mark.interop, pytest.mark.kafka_jars, pytest.mark.processes]
ACLS, TOKENS = "kafka.admin.AclCommand", "org.apache.kafka.tools.DelegationTokenCommand"
CONFIGS, TOPICS = "kafka.admin.ConfigCommand", "org.apache.kafka.tools.TopicCommand"
Run = Callable[..., Awaitable[tuple[int, str]]]


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    if reason := why_absent("kafka-tools"):
        pytest.skip(f"NOT TRIED WITH KAFKA'S TOOLS: {reason}")
    async with Cluster(2, listeners=[f"{LISTENER}://127.0.0.1:0"], properties=PROPERTIES) as one:
        yield one


@pytest.fixture
def run(cluster: Cluster) -> Run:
    """Runs a tool with a file of client properties; its exit status and all that it prints."""

    async def tool(name: str, config: Path, *words: str) -> tuple[int, str]:
        command = [java.find().command, "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", f"{os.environ[VARIABLE]}/*"]
        where = ["--bootstrap-server", cluster.bootstrap_servers, "--command-config", str(config)]

        def ran() -> tuple[int, str]:
            done = subprocess.run(
                [*command, name, *where, *words], capture_output=True, text=True, timeout=60, check=False
            )
            return done.returncode, done.stdout + done.stderr

        return await asyncio.get_running_loop().run_in_executor(None, ran)

    return tool


def login(path: Path, module: str, mechanism: str, user: str, password: str, more: str = "") -> Path:
    jaas = f'{module} required username="{user}" password="{password}"{more};'
    path.write_text(f"security.protocol={LISTENER}\nsasl.mechanism={mechanism}\nsasl.jaas.config={jaas}\n")
    return path


async def test_acl_tool_grants_lists_and_revokes(cluster: Cluster, run: Run, tmp_path: Path) -> None:
    admin = login(tmp_path / "admin", PLAIN_MODULE, "PLAIN", "admin", "a")
    alice = login(tmp_path / "alice", PLAIN_MODULE, "PLAIN", "alice", "b")
    producing = ("--allow-principal", "User:alice", "--producer", "--topic", "log-")
    status, output = await run(ACLS, admin, "--add", *producing, "--resource-pattern-type", "prefixed")
    assert status == 0, output
    denying = ("--deny-principal", "User:bob", "--operation", "Read", "--group", "g", "--deny-host", "10.0.0.1")
    await run(ACLS, admin, "--add", *denying)
    status, output = await run(ACLS, admin, "--list")
    assert "resourceType=TOPIC, name=log-, patternType=PREFIXED" in output
    assert "(principal=User:alice, host=*, operation=CREATE, permissionType=ALLOW)" in output
    assert "(principal=User:bob, host=10.0.0.1, operation=READ, permissionType=DENY)" in output
    status, output = await run(ACLS, alice, "--list")
    assert "ClusterAuthorizationException" in output
    status, output = await run(TOPICS, alice, "--create", "--topic", "log-1")
    assert (status, "Created topic log-1" in output) == (0, True), output
    status, output = await run(TOPICS, alice, "--create", "--topic", "other")
    assert "Authorization failed" in output
    await run(ACLS, admin, "--remove", *producing, "--resource-pattern-type", "prefixed", "--force")
    status, output = await run(ACLS, admin, "--list", "--topic", "log-1", "--resource-pattern-type", "match")
    assert "alice" not in output


async def test_token_tool_creates_renews_and_expires(cluster: Cluster, run: Run, tmp_path: Path) -> None:
    alice = login(tmp_path / "alice", PLAIN_MODULE, "PLAIN", "alice", "b")
    making = ("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    status, output = await run(TOKENS, alice, *making)
    assert (status, "Created delegation token" in output) == (0, True), output
    tokens = cluster.nodes[1].services.tokens
    assert tokens is not None
    (token,) = tokens.all
    assert (token.owner, token.renewers) == ("User:alice", ("User:bob",))
    secret = base64.b64encode(tokens.hmac_of(token.token_id)).decode()
    assert secret in output
    status, output = await run(TOKENS, alice, "--describe", "--owner-principal", "User:alice")
    assert token.token_id in output
    bearer = login(tmp_path / "bearer", SCRAM_MODULE, "SCRAM-SHA-256", token.token_id, secret, ' tokenauth="true"')
    status, output = await run(TOPICS, bearer, "--list")
    assert status == 0, output
    status, output = await run(TOKENS, bearer, *making)
    assert "DelegationTokenDisabledException" in output or "UnsupportedByAuthentication" in output
    status, output = await run(TOKENS, alice, "--renew", "--renew-time-period", "-1", "--hmac", secret)
    assert "Completed renew operation" in output
    status, output = await run(TOKENS, alice, "--expire", "--expiry-time-period", "-1", "--hmac", secret)
    assert "Completed expire operation" in output
    status, output = await run(TOPICS, bearer, "--list")
    assert "Authentication failed" in output


async def test_config_tool_manages_scram_users(cluster: Cluster, run: Run, tmp_path: Path) -> None:
    admin = login(tmp_path / "admin", PLAIN_MODULE, "PLAIN", "admin", "a")
    user = ("--entity-type", "users", "--entity-name", "carol")
    status, output = await run(CONFIGS, admin, "--alter", "--add-config", "SCRAM-SHA-256=[password=pw]", *user)
    assert "Completed updating config for user carol" in output
    carol = login(tmp_path / "carol", SCRAM_MODULE, "SCRAM-SHA-256", "carol", "pw")
    status, output = await run(TOPICS, carol, "--list")
    assert status == 0, output
    await run(CONFIGS, admin, "--alter", "--delete-config", "SCRAM-SHA-256", *user)
    status, output = await run(TOPICS, carol, "--list")
    assert "Authentication failed" in output
