"""With zookeeper.set.acl, only the nodes can change a cluster's znodes.

Method: real nodes against a real server; a client that logs in as nobody, or as somebody else, tries its best.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch import Admin, NewTopic
from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.node.app import Node
from anabranch.broker.node.start_settings import start_settings, zookeeper_login
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.clients.clock import time_of_day_clock
from anabranch.cluster.local_zookeeper import LocalZooKeeper, why_unavailable
from anabranch.controller.zk.access import login_in
from anabranch.controller.zk.kazoo_session import open_kazoo
from anabranch.controller.zk.session import ConnectionLoss, Create, LoginRefused, NoAuth, Set, ZkSession

pytestmark = pytest.mark.zookeeper
LOGIN = {"zookeeper.auth": "digest:brokers:planted"}
OWNED = {"zookeeper.set.acl": "true", **LOGIN}
REFUSED = "belongs to another login; zookeeper.auth must be equal on all nodes of the cluster"


@contextlib.asynccontextmanager
async def one_node(zookeeper: str, properties: dict[str, str]) -> AsyncIterator[Admin]:
    start = BrokerSettings(port=0, controlled_shutdown_enable=False, offsets_topic_replication_factor=1)
    settings = start_settings(start, properties)
    login, secured = zookeeper_login(settings), settings.zookeeper_set_acl
    node = Node(
        settings,
        connect=lambda: open_kazoo(zookeeper, session_timeout_ms=20_000, login=login, secured=secured),
        files=MemoryFiles(),
        rng=random.Random(1),
        clock_ms=time_of_day_clock(),
    )
    try:
        await node.start()
        assert await node.ready(20_000)
        async with Admin(f"127.0.0.1:{node.port}") as admin:
            yield admin
    finally:
        await node.stop()


@contextlib.asynccontextmanager
async def logged_in(zookeeper: str, text: str) -> AsyncIterator[ZkSession]:
    session = await open_kazoo(zookeeper, login=login_in(text) if text else None)
    try:
        yield session
    finally:
        await session.close()


@pytest.mark.parametrize("who", ["", "digest:brokers:another", "digest:others:planted"])
async def test_others_read_what_is_no_secret_and_change_nothing(zookeeper_hosts: str, who: str) -> None:
    async with asyncio.timeout(60), one_node(zookeeper_hosts, OWNED) as admin:
        await admin.create_topics([NewTopic(name="t")])
        await admin.set_password("alice", "wonder")
        async with logged_in(zookeeper_hosts, who) as thief:
            assert b"endpoints" in (await thief.get("/brokers/ids/1"))[0]
            assert "t" in await thief.children("/brokers/topics")
            for attempt in (
                lambda: thief.get("/config/users/alice"),
                lambda: thief.get_many(["/config/users/alice"]),
                lambda: thief.children("/config/brokers"),
                lambda: thief.set("/config/topics/t", b"{}"),
                lambda: thief.delete("/brokers/ids/1"),
                lambda: thief.create("/config/users/mallory", b"{}"),
                lambda: thief.create("/kafka-acl/Topic/t", b"{}", make_parents=True),
                lambda: thief.create("/controller", b"{}", ephemeral=True),
                lambda: thief.multi([Set("/controller_epoch", b"9"), Create("/admin/delete_topics/t", b"")]),
            ):
                with pytest.raises(NoAuth, match=REFUSED):
                    await attempt()
            await thief.create("/consumers/of-long-ago", b"")
        await admin.delete_topics(["t"])


async def test_nodes_start_again_with_owners_and_without(
    zookeeper_hosts: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with asyncio.timeout(60):
        with caplog.at_level(logging.WARNING, "anabranch.controller.zk.kazoo_session"):
            async with one_node(zookeeper_hosts, {}) as admin:
                await admin.create_topics([NewTopic(name="of-all")])
            assert not caplog.messages
            async with one_node(zookeeper_hosts, OWNED) as admin:
                await admin.create_topics([NewTopic(name="of-us")])
        assert len(caplog.messages) == 1
        assert "remain writable for all clients of ZooKeeper" in caplog.messages[0]
        async with one_node(zookeeper_hosts, LOGIN) as admin:
            await admin.create_topics([NewTopic(name="of-all-again")])
            await admin.alter_configs("of-us", changes={"retention.ms": "77"})
        async with logged_in(zookeeper_hosts, "") as anybody:
            for name in ("of-all", "of-all-again"):
                await anybody.set(f"/config/topics/{name}", b'{"version":1,"config":{}}')
            with pytest.raises(NoAuth):
                await anybody.set("/config/topics/of-us", b"{}")
        async with one_node(zookeeper_hosts, OWNED) as admin:
            await admin.delete_topics(["of-all", "of-us", "of-all-again"])


async def test_a_node_with_another_login_says_so_in_one_line(zookeeper_hosts: str, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("zookeeper.set.acl=true\nzookeeper.auth=digest:brokers:planted-another\n")
    command = [sys.executable, "-m", "anabranch.cli.main", "node", "--zookeeper", zookeeper_hosts]
    command += ["--listen", "127.0.0.1:0", "--log-level", "error", "--config-file", str(tmp_path / "other")]
    async with asyncio.timeout(60), one_node(zookeeper_hosts, OWNED):
        child = await asyncio.create_subprocess_exec(
            *command, "--id", "2", stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        said = (await child.communicate())[0].decode()
    assert child.returncode == 1
    assert said == f"Error: cannot start: ZooKeeper refuses: /config/users {REFUSED}\n"


async def test_an_ensemble_that_has_users(tmp_path: Path) -> None:
    """DIGEST-MD5, with the users in a file of the server."""
    reason = why_unavailable()
    if reason is not None:
        pytest.skip(f"NO REAL ZOOKEEPER: {reason}")
    users = tmp_path / "jaas.conf"
    users.write_text('Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_kafka="planted"; };\n')
    right = {"zookeeper.set.acl": "true", "zookeeper.auth": "sasl:kafka:planted"}
    async with asyncio.timeout(60), LocalZooKeeper(jaas=users) as server:
        async with one_node(f"{server.hosts}/kafka", right) as admin:
            await admin.create_topics([NewTopic(name="t")])
            for wrong in ("sasl:kafka:another", "sasl:nobody:planted"):
                with pytest.raises(LoginRefused, match=r"no user \w+ with this password at 127.0.0.1"):
                    await open_kazoo(server.hosts, login=login_in(wrong))
            async with logged_in(f"{server.hosts}/kafka", "digest:kafka:planted") as another:
                with pytest.raises(NoAuth):
                    await another.set("/config/topics/t", b"{}")
        async with one_node(f"{server.hosts}/kafka", right) as admin:
            await admin.delete_topics(["t"])


async def test_a_login_by_sasl_at_a_server_without_users_is_explained(zookeeper_hosts: str) -> None:
    login = login_in("sasl:kafka:planted")
    with pytest.raises(ConnectionLoss, match="a server without SASL users does not respond to a SASL login"):
        await open_kazoo(zookeeper_hosts, session_timeout_ms=1000, connect_timeout_ms=500, login=login)
