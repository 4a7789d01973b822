"""`anabranch control serve` controls nodes that were started by hand."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator

import pytest

from anabranch.cluster.launched_agent import CONTROL_TOKEN
from anabranch.control.actions import ActionRefused
from anabranch.control.front import discovered_front as module
from anabranch.control.front.discovered_front import NoFront, discovered_front
from anabranch.faults.rule import Rule

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

SESSION_MS = 4000


@pytest.fixture
async def node(zookeeper_hosts: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """One node, started by hand."""
    words = ["--id", "7", "--zookeeper", zookeeper_hosts, "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0"]
    words += ["--config", f"zookeeper.session.timeout.ms={SESSION_MS}", "--log-level", "error"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "anabranch.cli.main", "node", *words),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, CONTROL_TOKEN: "secret"},
    )
    assert process.stdout is not None
    assert (await process.stdout.readline()).startswith(b"ready")
    yield process
    if process.returncode is None:
        process.kill()
    await process.wait()


async def test_node_is_found_and_controlled(
    node: asyncio.subprocess.Process, zookeeper_hosts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(60), discovered_front(zookeeper_hosts, "secret") as front:
        (row,) = await front.nodes()
        assert (row["node"], row["running"], row["frozen"]) == (7, True, False)
        assert row["port"] > 0
        await front.rules.add(Rule(name="r", api=("Metadata",), delay_ms=(1.0,)))
        await front.actions.freeze(7)
        assert (await front.nodes())[0]["frozen"]
        await front.actions.thaw(7)
        monkeypatch.setattr(module, "LINK_S", 0.5)
        with pytest.raises(NoFront, match=f"node 7: front {front.name} controls this node"):
            async with discovered_front(zookeeper_hosts, "secret"):
                pass
        with pytest.raises(NoFront, match="token"):
            async with discovered_front(zookeeper_hosts, "wrong"):
                pass
        await front.actions.kill(7)
        assert await node.wait() == -9
        with pytest.raises(ActionRefused, match="start node 7 as it was started before"):
            await front.actions.start(7)
        assert (await front.rules.row("r"))["waiting_for"] == [7]


async def test_first_answer_of_an_agent_may_take_as_long_as_its_consent(
    node: asyncio.subprocess.Process, zookeeper_hosts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LINK_S", 0.5)
    node.send_signal(signal.SIGSTOP)
    with pytest.raises(NoFront, match=r"node 7: .* does not answer in 0\.5 s$"):
        async with discovered_front(zookeeper_hosts, "secret"):
            pass


async def test_cluster_without_agents_has_no_front(zookeeper_hosts: str) -> None:
    with pytest.raises(NoFront, match="has a control agent; start nodes with `anabranch node --control`"):
        async with discovered_front(zookeeper_hosts, ""):
            pass
