"""A node that no launcher started, as a front finds it: by its agent's address in ZooKeeper, and its process.

The front signals only processes of its own machine, process namespace and user. It starts a node again only by the
launcher that has started it before.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.cluster.node_process import STOP_TIMEOUT_S, is_stopped
from anabranch.control.actions import ActionRefused
from anabranch.control.agent_address import pid_namespace

if TYPE_CHECKING:
    from anabranch.control.agent_address import AgentAddress

PROC: Final = Path("/proc")
POLL_S: Final = 0.02


class DiscoveredNode:
    """A node with an agent, and its process if that is one of this machine.

    Args:
        address: The address of its agent.
        host: The host of its first listener.
        port: The port of its first listener.
    """

    def __init__(self, address: AgentAddress, host: str, port: int) -> None:
        self.node_id = address.node_id
        self.host = host
        self.port = port
        self.address: AgentAddress | None = address
        """The address of its agent; None while ZooKeeper has none."""
        self._known = address

    def on_found(self, address: AgentAddress | None) -> None:
        """Take what ZooKeeper shows now."""
        self.address = address
        self._known = address or self._known

    @property
    def is_local(self) -> bool:
        """Whether its process is one of this machine, and its id means this process here."""
        return self._known.host == socket.gethostname() and self._known.pid_namespace == pid_namespace()

    @property
    def running(self) -> bool:
        """Whether it runs: by its process on this machine, else by its address in ZooKeeper."""
        return self._is_alive() if self.is_local else self.address is not None

    @property
    def frozen(self) -> bool:
        """Whether its process is stopped by SIGSTOP; False for another machine, where that cannot be seen."""
        try:
            return self.is_local and self._is_alive() and is_stopped(self._known.pid)
        except OSError:
            return False

    @property
    def refusal(self) -> str:
        """Why this front cannot signal its process; empty if it can."""
        if not self.is_local and self._known.host == socket.gethostname():
            return (
                f"node {self.node_id} and this front have other process ids, as in containers: signals would reach "
                "another process; start both with the host's process ids (`pid: host` in Compose)"
            )
        if not self.is_local:
            return (
                f"node {self.node_id} runs on {self._known.host}, and this front on {socket.gethostname()}: "
                "a front acts only on processes of its own machine; act on the process there"
            )
        try:
            os.kill(self._known.pid, 0)
        except PermissionError:
            return f"the process of node {self.node_id} belongs to another user"
        except ProcessLookupError:
            pass
        return ""

    def signal(self, number: signal.Signals) -> None:
        """Send its process a signal. Raises ActionRefused for a process of another machine or user."""
        if reason := self.refusal:
            raise ActionRefused(reason)
        if self._is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._known.pid, number)

    async def kill(self) -> None:
        """Send SIGKILL, and wait for the end."""
        self.signal(signal.SIGKILL)
        await self._wait_ended()

    async def stop(self) -> None:
        """Send SIGTERM, and wait for the end. Raises ActionRefused if that takes too long."""
        self.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self._wait_ended()
        except TimeoutError:
            raise ActionRefused(f"node {self.node_id} has not stopped within {STOP_TIMEOUT_S:g} s") from None

    async def _wait_ended(self) -> None:
        while self._is_alive():  # noqa: ASYNC110  # another process's child sets no event here
            await asyncio.sleep(POLL_S)

    def _is_alive(self) -> bool:
        """Whether the process exists and is this node: its id may have passed to another process."""
        try:
            entry = PROC / str(self._known.pid)
            words = (entry / "cmdline").read_bytes().split(b"\0")
            return b"node" in words and (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False
