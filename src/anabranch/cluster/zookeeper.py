"""A ZooKeeper server as a child process of this one: it is started, waited for, killed and stopped.

Its data are in a temporary directory by default. It can be killed and started again on the same port and data, to test
failures of ZooKeeper. `local_zookeeper` and `built_in_zookeeper` say which program runs.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from abc import abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from anabranch.clients.directory_lock import DirectoryLock
from anabranch.protocol.host_port import connectable, format_host_port
from anabranch.runtime.sockets import family_of
from anabranch.runtime.stall_detection import STALL_TIMEOUT_S, Stalled, process_progress, wait_while_progressing
from anabranch.runtime.startable import Startable
from anabranch.state.data_directory import ZOOKEEPER_DATA

DIE_WITH: Final = """\
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() == int(sys.argv[1]): os.execvp(sys.argv[2], sys.argv[2:])
"""
LOG: Final = "zookeeper.log"
ANSWER_TIMEOUT_S: Final = 2.0
STOP_TIMEOUT_S: Final = 10.0
POLL_S: Final = 0.02
POLL_ENDED_S: Final = 0.5


class ZooKeeperUnavailable(RuntimeError):
    """A local ZooKeeper cannot run here; the message names the remedy."""


class ZooKeeperProcess(Startable):
    """One server; `async with` (or plain `with`, outside of a loop) starts and stops it."""

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        data_dir: str | Path | None = None,
        stall_timeout_s: float | None = STALL_TIMEOUT_S,
    ) -> None:
        """Create a server.

        `stall_timeout_s`: how long the server may make no progress before its first response; None: for ever.
        """
        self.port = port
        self._stall_timeout_s = stall_timeout_s
        self._host = host
        self._given_dir = Path(data_dir) if data_dir is not None else None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def _command(self, directory: Path) -> list[str]:
        """Return the command line, and write what it needs into the directory. Raises ZooKeeperUnavailable."""

    def _working_directory(self) -> Path | None:
        """Return the directory in which the process runs; None for that of this process."""
        return None

    def __repr__(self) -> str:
        state = f"pid {self._process.pid}" if self._process else "not running"
        return f"<ZooKeeper at {self.hosts}, {state}>"

    @property
    def hosts(self) -> str:
        """The server's connect string, "HOST:PORT"."""
        return format_host_port(connectable(self._host), self.port)

    @property
    def data_directory(self) -> Path:
        """The directory of its snapshots and transaction logs."""
        return self._directory() / ZOOKEEPER_DATA

    @property
    def pid(self) -> int | None:
        """The process id of the server; None if it does not run."""
        return self._process.pid if self._process else None

    async def start(self) -> None:
        """Start the server, and wait until it responds. A chosen port that was taken meanwhile is replaced."""
        chosen_here = self.port == 0
        for last_try in (False, False, True) if chosen_here else (True,):
            if chosen_here:
                self.port = free_port()
            if not is_free(self._host, self.port):  # otherwise another server might respond in its place
                raise ZooKeeperUnavailable(f"port {self.port} of {self._host} is in use: choose another for ZooKeeper")
            self.launch()
            try:
                await self.wait_ready()
            except ZooKeeperUnavailable:
                await self.stop()
                if last_try:
                    raise
            else:
                return

    async def stop(self) -> None:
        """Stop the server and remove its temporary data."""
        await self._end(signal.SIGTERM)
        self._remove_temporary()

    async def wait_ended(self) -> None:
        """Wait until the server ends by itself, and raise an error with its last output."""
        assert self._process is not None
        process = self._process
        while process.poll() is None:  # noqa: ASYNC110  # a child process sets no event here
            await asyncio.sleep(POLL_ENDED_S)
        if self._process is process:
            raise ZooKeeperUnavailable(f"ZooKeeper ended with code {process.returncode}; it wrote:\n{self._log_tail()}")

    async def kill(self) -> None:
        """Kill the server as a crash does; `start` restarts it with its port and data."""
        await self._end(signal.SIGKILL)

    def __enter__(self) -> Self:
        asyncio.run(self.start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run(self.stop())

    def launch(self) -> None:
        """Start the process without waiting: a server of a quorum responds only when most servers run."""
        directory = self._directory()
        lock = DirectoryLock(directory)
        try:
            command = [*die_with_parent(), *self._command(directory)]
        except BaseException:
            lock.release()
            self._remove_temporary()
            raise
        log = directory / LOG
        with log.open("ab") as output:
            # Its own session: Ctrl-C at the terminal must reach only the nodes, which need ZooKeeper to leave the
            # cluster. The server holds the lock, because it may outlive this process.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._working_directory(),
                start_new_session=True,
                pass_fds=(lock.descriptor,),
            )
        lock.hand_over(self._process.pid)

    def _directory(self) -> Path:
        if self._given_dir is not None:
            self._given_dir.mkdir(mode=0o700, parents=True, exist_ok=True)  # for SCRAM credentials and tokens
            return self._given_dir.resolve()
        if self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="anabranch-zookeeper-", ignore_cleanup_errors=True)
        return Path(self._temporary.name)

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    async def wait_ready(self) -> None:
        """Wait until the server responds. Raises ZooKeeperUnavailable if it ends, or makes no progress."""
        assert self._process is not None
        pid, log = self._process.pid, self._directory() / LOG
        try:
            code = await wait_while_progressing(
                self._first_answer(self._process),
                lambda: process_progress(pid, log),
                stall_timeout_s=self._stall_timeout_s,
            )
        except Stalled as error:
            what = f"does not respond: {error}"
        else:
            if code is None:
                return
            what = f"ended immediately with code {code}"
        raise ZooKeeperUnavailable(f"ZooKeeper at {self.hosts} {what}; its log ends with:\n{self._log_tail()}")

    async def _first_answer(self, process: subprocess.Popen[bytes]) -> int | None:
        """Wait until the server responds (None) or ends (its exit status)."""
        while process.poll() is None and not await answers(connectable(self._host), self.port):  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
        return process.poll()

    def _log_tail(self) -> str:
        log = self._directory() / LOG
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        return "\n".join(lines[-15:]) or "(nothing)"

    async def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        for _ in range(int(STOP_TIMEOUT_S / POLL_S)):
            if process.poll() is not None:
                return
            await asyncio.sleep(POLL_S)
        process.kill()
        process.wait()


async def answers(host: str, port: int | str) -> bool:
    """Whether a ZooKeeper server is in service at this address."""
    writer = None
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(b"srvr")
            return b"Mode:" in await reader.read()
    except OSError:  # includes TimeoutError
        return False
    finally:
        if writer is not None:
            writer.close()


def free_port() -> int:
    """A port on 127.0.0.1 that no process listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen on this port now."""
    with socket.socket(family_of(host)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def die_with_parent() -> list[str]:
    """A command prefix with which the kernel kills the child when this process is killed (Linux only).

    The kernel watches the thread that forks, so only the main thread may use it.
    """
    if threading.current_thread() is not threading.main_thread() or sys.platform != "linux":
        return []
    setpriv = shutil.which("setpriv")  # from util-linux; starts faster than a second Python
    return [setpriv, "--pdeathsig", "KILL"] if setpriv else [sys.executable, "-SEc", DIE_WITH, str(os.getpid())]
