"""A node that was found is signalled if it is a process of this machine and user."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from anabranch.control.actions import ActionRefused
from anabranch.control.agent_address import AgentAddress, pid_namespace
from anabranch.control.front.discovered_node import DiscoveredNode

SLEEPS = "import signal; print(1, flush=True); signal.pause()"


def address(pid: int, host: str | None = None) -> AgentAddress:
    return AgentAddress(2, "http://127.0.0.1:1", pid, host or socket.gethostname(), pid_namespace())


@asynccontextmanager
async def process(*words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    command = [sys.executable, "-I", "-S", "-c", SLEEPS, *words]
    one = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert one.stdout is not None
    await one.stdout.readline()
    try:
        yield one
    finally:
        if one.returncode is None:
            one.kill()
        await one.wait()


async def test_process_of_this_machine_is_frozen_and_killed() -> None:
    async with process("node") as one, asyncio.timeout(30):
        node = DiscoveredNode(address(one.pid), "127.0.0.1", 9092)
        assert node.running and not node.frozen
        node.signal(signal.SIGSTOP)
        while not node.frozen:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await node.kill()
        assert not node.running and not node.frozen
        assert await one.wait() == -signal.SIGKILL
        node.signal(signal.SIGCONT)  # no error: it has ended meanwhile


async def test_process_of_this_machine_is_stopped() -> None:
    async with process("node") as one, asyncio.timeout(30):
        await DiscoveredNode(address(one.pid), "127.0.0.1", 9092).stop()
        assert await one.wait() == -signal.SIGTERM


async def test_process_id_that_has_passed_to_another_program_is_not_the_node() -> None:
    async with process("other") as one:
        node = DiscoveredNode(address(one.pid), "127.0.0.1", 9092)
        assert not node.running
        await node.kill()
        one.terminate()
        assert await one.wait() == -signal.SIGTERM, "nobody else has ended it"


async def test_new_address_is_a_new_process() -> None:
    async with process("node") as one:
        node = DiscoveredNode(address(2**22 + 1), "127.0.0.1", 9092)
        assert not node.running
        node.on_found(address(one.pid))
        assert node.running
        node.on_found(None)  # its session has expired; the process runs on
        assert node.running and node.address is None


async def test_node_of_another_container_is_not_signalled_although_its_machine_has_the_same_name() -> None:
    """Its process id is that of another process here: often of the front itself."""
    async with process("node") as one:
        elsewhere = AgentAddress(2, "http://127.0.0.1:1", one.pid, socket.gethostname(), "pid:[1]")
        node = DiscoveredNode(elsewhere, "127.0.0.1", 9092)
        assert node.running and not node.frozen
        with pytest.raises(ActionRefused, match="node 2 and this front have other process ids, as in containers"):
            await node.kill()
        node.on_found(None)
        assert not node.running, "by its address, and not by the process that has its id here"
        one.terminate()
        assert await one.wait() == -signal.SIGTERM


async def test_node_of_another_machine_is_not_signalled() -> None:
    node = DiscoveredNode(address(os.getpid(), "elsewhere"), "10.0.0.7", 9092)
    assert node.running and not node.frozen
    with pytest.raises(ActionRefused, match=r"node 2 runs on elsewhere.*act on the process there"):
        await node.kill()
    node.on_found(None)
    assert not node.running
