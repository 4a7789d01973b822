"""No secret is in logs, tracebacks, metrics, responses, the control plane, reprs or the process list.

Method: `anabranch up` as a process of its own that logs everything, with secrets planted; clients with right
and wrong ones, and what no honest client sends; then a search through all that was said, in plain and in base64.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import sys
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from anabranch import Admin, Consumer, NewTopic, Producer
from anabranch.clients.authentication import AuthenticationFailed
from anabranch.clients.connection import Connection
from anabranch.clients.security import SecurityArguments
from anabranch.clients.security_config import make_security
from anabranch.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from anabranch.protocol.apis.sasl_handshake import SaslHandshakeRequest
from anabranch.protocol.errors import KafkaError
from tests.secured.certificates import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE

SECRETS = (
    *("planted-of-brokers", "planted-of-alice", "planted-in-vain", "planted-in-a-token", "planted-by-an-admin"),
    *("planted-for-zookeeper", "planted-under-all-tokens"),
)
OF_BROKERS, OF_ALICE, IN_VAIN, IN_TOKEN, BY_ADMIN, OF_ZOOKEEPER, OF_TOKENS = SECRETS
LISTENER = "SASL_PLAINTEXT"
PREFIX = f"listener.name.{LISTENER.lower()}"
PLAIN_JAAS = f'{PLAIN_MODULE} required username="admin" password="{OF_BROKERS}" user_admin="{OF_BROKERS}";'
PROPERTIES = f"""
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,OAUTHBEARER
sasl.mechanism.inter.broker.protocol=PLAIN
{PREFIX}.plain.sasl.jaas.config={PLAIN_JAAS}
{PREFIX}.scram-sha-256.sasl.jaas.config={SCRAM_MODULE} required;
{PREFIX}.oauthbearer.sasl.jaas.config={OAUTH_MODULE} required;
authorizer.class.name=kafka.security.authorizer.AclAuthorizer
super.users=User:admin
zookeeper.auth=digest:brokers:{OF_ZOOKEEPER}
delegation.token.secret.key={OF_TOKENS}
"""


@dataclass
class Running:
    """The cluster's process, its addresses, and its output."""

    process: asyncio.subprocess.Process
    told: dict[str, str]
    said: bytearray

    def command_line(self) -> bytes:
        """The process's command line, visible to all users."""
        return Path(f"/proc/{self.process.pid}/cmdline").read_bytes()


@contextlib.asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Running]:
    (folder / "server.properties").write_text(PROPERTIES)
    words = ["up", "--brokers", "1", "--listener", f"{LISTENER}://127.0.0.1:0", "--log-level", "debug"]
    words += ["--config-file", str(folder / "server.properties"), "--metrics-port", "0"]
    words += ["--control", "127.0.0.1:0", "--control-journal", "1000"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "anabranch.cli.main", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PYTHONASYNCIODEBUG": "1"},
    )
    assert process.stdout is not None
    said = bytearray()
    line = b""
    while not line.startswith(b"ready "):
        line = await process.stdout.readline()
        assert line, said.decode()
        said += line
    told = dict(one.split("=", 1) for one in line.decode().split()[1:])

    async def hear() -> None:
        assert process.stdout is not None
        while some := await process.stdout.read(65536):
            said.extend(some)

    hearing = asyncio.create_task(hear())
    try:
        yield Running(process, told, said)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        await hearing


def letting(user: str, password: str, mechanism: str = "PLAIN") -> SecurityArguments:
    return {
        "security_protocol": LISTENER,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }


def bearing(token: str) -> SecurityArguments:
    return {
        "security_protocol": LISTENER,
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": lambda: token,
    }


async def use(servers: str) -> tuple[list[str], bytes]:
    """All that clients do with secrets. Returns what they were told and how they look, and the secret of a token."""
    heard: list[str] = []
    boss = letting("admin", OF_BROKERS)
    async with Admin(servers, **boss) as admin:
        await admin.create_topics([NewTopic(name="t")])
        await admin.set_password("alice", OF_ALICE, mechanisms=["SCRAM-SHA-256"])
        heard.append(repr(await admin.describe_users()))
        token = await admin.create_token()
        heard.append(repr(token))
        heard.append(repr(await admin.describe_tokens()))
        heard.append(repr(await admin.describe_configs(broker=1)))
        for name in ("sasl.jaas.config", f"{PREFIX}.plain.sasl.jaas.config", "ssl.keystore.password"):
            try:
                await admin.alter_configs(broker=1, changes={name: f'{PLAIN_MODULE} required password="{BY_ADMIN}";'})
            except KafkaError as refused:
                heard.append(str(refused))
        heard.append(repr(await admin.describe_configs(broker=1)))
        heard.append(repr(vars(admin)))
    async with Producer(servers, **boss) as producer:
        await producer.send_and_wait("t", b"value")
        heard.append(repr(vars(producer)))
    reading = Consumer("t", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest", **boss)
    async with reading as consumer:
        heard.append(repr(await anext(consumer)))
        heard.append(repr(vars(consumer)))
    wrong = [
        letting("alice", IN_VAIN, "SCRAM-SHA-256"),
        letting("admin", IN_VAIN),
        bearing(IN_TOKEN),
        bearing(f"{IN_TOKEN}.e30."),
    ]
    by_token: SecurityArguments = {
        **letting(token.token_id, token.secret, "SCRAM-SHA-256"),
        "sasl_delegation_token": True,
    }
    for one in (letting("alice", OF_ALICE, "SCRAM-SHA-256"), by_token, *wrong):
        security = make_security(**one)
        heard.append(repr(security))
        host, _, port = servers.partition(":")
        try:
            connection = await Connection.open(host, int(port), client_id="test", security=security)
            heard.append(repr(connection))
            await connection.close()
        except AuthenticationFailed as refused:
            heard.append(repr(refused))
    for mechanism, shown in dishonest():
        heard.append(await raw(servers, mechanism, shown))
    return heard, base64.b64decode(token.secret)


def dishonest() -> list[tuple[str, bytes]]:
    """What no client sends that means well."""
    secret = IN_VAIN.encode()
    return [
        ("PLAIN", secret),
        ("PLAIN", b"\0admin\0" + secret + b"\0"),
        ("PLAIN", b"\0\0" + secret),
        ("PLAIN", secret + b"\0admin\0" + secret),
        ("PLAIN", b"\0admin\0" + secret + b"\xff\xfe"),
        ("SCRAM-SHA-256", b"n,,n=alice,r=" + secret + b",p=" + secret),
        ("SCRAM-SHA-256", secret),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer " + secret + b"\x01\x01"),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer a" + secret + b"\x01"),
        ("OAUTHBEARER", secret * 100),
    ]


async def raw(servers: str, mechanism: str, token: bytes) -> str:
    host, _, port = servers.partition(":")
    connection = await Connection.open(host, int(port), client_id="test")
    try:
        await connection.call(SaslHandshakeRequest(mechanism=mechanism))
        return repr(await connection.call(SaslAuthenticateRequest(auth_bytes=token)))
    except ConnectionError as refused:
        return repr(refused)
    finally:
        await connection.close()


async def fetched(url: str) -> bytes:
    def get() -> bytes:
        with urllib.request.urlopen(url, timeout=20) as answer:
            content: bytes = answer.read()
            return content

    return await asyncio.get_running_loop().run_in_executor(None, get)


async def test_nothing_tells_a_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with running(tmp_path) as cluster:
        heard, hmac = await use(cluster.told["bootstrap"])
        control = cluster.told["control"].removeprefix("http://").rstrip("/")
        pages = {
            what: await fetched(url)
            for what, url in {
                "metrics": cluster.told["metrics"],
                "state": f"http://{control}/v1/state",
                "events": f"http://{control}/v1/events",
                "journal": f"http://{control}/v1/journal",
            }.items()
        }
        pages["command line"] = cluster.command_line()
    pages["log"] = bytes(cluster.said)
    pages["log of the clients"] = "\n".join(one.getMessage() for one in caplog.records).encode()
    pages["clients"] = "\n".join(heard).encode()
    assert b"anabranch" in pages["command line"] and len(pages["log"]) > 5000 and b"produce" in pages["metrics"].lower()
    assert b"IncrementalAlterConfigs" in pages["journal"]
    assert leaks(base64.b64encode(hmac), hmac)
    found = {what: leaks(page, hmac) for what, page in pages.items()}
    assert {what: places for what, places in found.items() if places} == {}


def leaks(page: bytes, *more: bytes) -> list[str]:
    """The secrets in a text, however they are written there, each with what stands before it."""
    found: list[Any] = []
    for secret in (*(one.encode() for one in SECRETS), *more):
        forms = {secret, secret.hex().encode()}
        for shift in range(3):  # base64 writes three bytes at a time, so there are three ways to begin
            written = base64.b64encode(b"x" * shift + secret)
            forms.add(written[4 if shift else 0 : -4])
        for form in forms:
            position = page.find(form)
            if position >= 0:
                found.append(page[max(0, position - 120) : position + 30].decode(errors="replace"))
    return found


def test_the_search_finds_what_is_there() -> None:
    for secret in SECRETS:
        assert leaks(b"log: " + secret.encode())
        for shift in range(3):
            assert leaks(b'{"auth_bytes": "' + base64.b64encode(b"y" * shift + secret.encode() + b"z") + b'"}'), shift
        assert leaks(secret.encode().hex().encode())
    assert leaks(b"nothing of the kind") == []
