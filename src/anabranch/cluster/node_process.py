"""One node of a cluster of processes: `anabranch node` in a process of its own.

A node keeps its port and data directory over restarts. Its log goes to a file, and its properties come from one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from anabranch.broker.config.listeners import Listener
from anabranch.broker.config.properties_file import properties_text
from anabranch.cluster.launched_agent import LaunchedAgent
from anabranch.cluster.zookeeper import die_with_parent
from anabranch.protocol.host_port import format_host_port
from anabranch.runtime.private_files import write_private_file
from anabranch.runtime.stall_detection import STALL_TIMEOUT_S, Stalled, process_progress, wait_while_progressing

log: Final = logging.getLogger(__name__)

STOP_TIMEOUT_S: Final = 30.0
COMMAND_MODULE: Final = "anabranch.cli.main"
LOG_TAIL_BYTES: Final = 2000
PROC: Final = Path("/proc")


class NodeFailed(RuntimeError):
    """A node process ended, or made no progress; the message has its last log lines."""


@dataclass(slots=True)
class NodeProcess:
    """One node: its settings, and its process while it runs."""

    node_id: int
    roles: str
    host: str
    port: int
    directory: Path
    zookeeper: str
    properties: Mapping[str, str]
    log_level: str = "info"
    environment: Mapping[str, str] | None = None
    module: str = COMMAND_MODULE
    metrics_port: int | None = None
    listeners: tuple[Listener, ...] = ()
    """The listeners, if not one plain address; `host` and `port` are then the first one's."""
    agent: LaunchedAgent | None = None
    """The control agent, if the node has one."""
    process: asyncio.subprocess.Process | None = field(default=None, init=False)

    refusal = ""
    """Its launcher may always signal it."""

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return format_host_port(self.host, self.port)

    @property
    def log_path(self) -> Path:
        """The path of the node's log file."""
        return self.directory / f"node-{self.node_id}.log"

    @property
    def properties_path(self) -> Path:
        """The path of the node's properties: passwords are among them, which a command line would reveal."""
        return self.directory / f"node-{self.node_id}.properties"

    @property
    def running(self) -> bool:
        """Whether the process runs."""
        return self.process is not None and self.process.returncode is None

    @property
    def pid(self) -> int:
        """Process id; -1 when it does not run."""
        return self.process.pid if self.process is not None and self.running else -1

    @property
    def frozen(self) -> bool:
        """Whether the process is stopped by SIGSTOP."""
        try:
            return self.running and is_stopped(self.pid)
        except OSError:  # it has ended meanwhile
            return False

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal, if it runs."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    def command(self) -> list[str]:
        """The command line of the node."""
        words = [*die_with_parent(), sys.executable, "-m", self.module, "node"]
        words += ["--id", str(self.node_id), "--roles", self.roles]
        words += ["--zookeeper", self.zookeeper, "--log-level", self.log_level]
        if self.listeners:
            words += [word for one in self.listeners for word in ("--listener", str(one))]
        else:
            words += ["--listen", self.address]
        if "broker" in self.roles:
            words += ["--data-dir", str(self.directory / f"node-{self.node_id}")]
        if self.metrics_port is not None:
            words += ["--metrics-port", str(self.metrics_port)]
        if self.agent is not None:
            words += self.agent.arguments()
        return [*words, "--config-file", str(self.properties_path)]

    async def start(self, *, extra: Mapping[str, str] | None = None) -> None:
        """Start the process. `extra`: properties for this start only."""
        assert not self.running, f"node {self.node_id} is running already"
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private_file(self.properties_path, properties_text(self.properties).encode())
        words = self.command()
        for name, value in (extra or {}).items():
            words += ["--config", f"{name}={value}"]
        with self.log_path.open("ab") as log_file:
            self.process = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log_file,
                env=self._environment(),
            )

    def _environment(self) -> dict[str, str] | None:
        """The environment of the process; None for that of this process."""
        given = None if self.environment is None else dict(self.environment)
        if self.agent is None:
            return given
        return {**(os.environ if given is None else given), **self.agent.environment()}

    async def wait_ready(self, stall_timeout_s: float = STALL_TIMEOUT_S) -> None:
        """Wait for the node's ready line.

        Raises NodeFailed if the node ends, or makes no progress for `stall_timeout_s`.
        """
        assert self.process is not None and self.process.stdout is not None
        pid = self.process.pid
        try:
            line = await wait_while_progressing(
                self.process.stdout.readline(),
                lambda: process_progress(pid, self.log_path),
                stall_timeout_s=stall_timeout_s,
            )
        except Stalled as error:
            raise NodeFailed(f"node {self.node_id} is not ready: {error}\n{self.log_tail()}") from None
        if not line.startswith(b"ready"):
            await self.process.wait()
            raise NodeFailed(f"node {self.node_id} ended with {self.process.returncode}\n{self.log_tail()}")

    async def wait_ended(self) -> int:
        """Wait until the process has ended; returns its exit status."""
        assert self.process is not None
        return await self.process.wait()

    async def kill(self) -> None:
        """Send SIGKILL, and wait until the process has ended."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()

    async def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop the node with SIGTERM: leaderships move away, logs are closed. Send SIGKILL after the timeout.

        A frozen node continues, for this.
        """
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
            if self.frozen:
                self.process.send_signal(signal.SIGCONT)
        try:
            async with asyncio.timeout(timeout_s):
                await self.process.wait()
        except TimeoutError:
            log.warning("node %d did not stop within %g s", self.node_id, timeout_s)
            await self.kill()

    def log_tail(self) -> str:
        """The last lines of its log."""
        if not self.log_path.exists():
            return ""
        with self.log_path.open("rb") as log_file:
            log_file.seek(max(0, self.log_path.stat().st_size - LOG_TAIL_BYTES))
            return log_file.read().decode(errors="replace")


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped, as SIGSTOP leaves it. Raises OSError if it has ended."""
    status = (PROC / str(pid) / "stat").read_text()
    return status.rpartition(")")[2].split()[0] == "T"
