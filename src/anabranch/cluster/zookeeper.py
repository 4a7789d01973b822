"""ZooKeeper servers as child processes of this one; a real one runs from PySpark's jars, without an installation.

`LocalZooKeeper` is an ordinary server, alone or in an ensemble: small heap, no admin server, on 127.0.0.1 by default.
Any `ZooKeeperProcess` has its data in a temporary directory by default. It can be killed and started again on the same
port and data, to test failures of ZooKeeper.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from anabranch.clients.directory_lock import DirectoryLock
from anabranch.protocol.host_port import connectable, format_host_port
from anabranch.runtime.sockets import family_of
from anabranch.runtime.stall_detection import STALL_TIMEOUT_S, Stalled, process_progress, wait_while_progressing
from anabranch.runtime.startable import Startable
from anabranch.spark_jobs import java
from anabranch.state.data_directory import ZOOKEEPER_DATA

MAIN_CLASS: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
JARS: Final = (
    "zookeeper-*.jar",
    "netty-buffer-*.jar",
    "netty-codec-*.jar",
    "netty-common-*.jar",
    "netty-handler-*.jar",
    "netty-resolver-*.jar",
    "netty-transport-*.jar",
    "slf4j-api-*.jar",
    "log4j-api-*.jar",
    "log4j-core-*.jar",
    "log4j-slf4j2-impl-*.jar",
    "metrics-core-*.jar",
    "snappy-java-*.jar",
    "commons-cli-*.jar",
    "commons-io-*.jar",
)
JVM_OPTIONS: Final = (
    "-Xms16m",
    "-Xmx64m",
    "-Xss512k",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Dzookeeper.preAllocSize=1024",  # KiB; the default of 64 MiB is for disks that seek
)
TICK_MS: Final = 500
IPV4_ALONE: Final = "-Djava.net.preferIPv4Stack=true"
"""Otherwise a JVM binds IPv4 addresses to sockets of IPv6, which some machines do not have."""
DIE_WITH: Final = """\
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() == int(sys.argv[1]): os.execvp(sys.argv[2], sys.argv[2:])
"""
LOGGING: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n
"""
LOG: Final = "zookeeper.log"
INSTEAD: Final = "or name a running ensemble with --zookeeper HOST:PORT"
ANSWER_TIMEOUT_S: Final = 2.0
STOP_TIMEOUT_S: Final = 10.0
POLL_S: Final = 0.02
POLL_ENDED_S: Final = 0.5


class ZooKeeperUnavailable(RuntimeError):
    """A local ZooKeeper cannot run here; the message names the remedy."""


def class_path() -> str:
    """The class path of ZooKeeper and its dependencies in PySpark's jars (PySpark is not imported)."""
    spec = importlib.util.find_spec("pyspark")
    for place in (spec.submodule_search_locations or []) if spec else []:
        jars = [str(jar) for pattern in JARS for jar in sorted((Path(place) / "jars").glob(pattern))]
        if any(Path(jar).name.startswith("zookeeper-") for jar in jars):
            return os.pathsep.join(jars)
    raise ZooKeeperUnavailable(
        f"a local ZooKeeper needs the jars of PySpark: pip install 'anabranch[audit]'; {INSTEAD}"
    )


def why_unavailable() -> str | None:
    """The reason why a local ZooKeeper cannot run here, or None."""
    try:
        java_version()
    except ZooKeeperUnavailable as error:
        return str(error)
    return None


def java_version() -> tuple[java.Java, str]:
    """The Java and the class path for a local ZooKeeper."""
    try:
        return java.find(), class_path()
    except java.JavaMissing as error:
        raise ZooKeeperUnavailable(f"a local ZooKeeper cannot run: {error}; {INSTEAD}") from None


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


class LocalZooKeeper(ZooKeeperProcess):
    """A real server, from PySpark's jars."""

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        data_dir: str | Path | None = None,
        server_id: int = 0,
        quorum: Mapping[int, str] | None = None,
        stall_timeout_s: float | None = STALL_TIMEOUT_S,
        jaas: str | Path | None = None,
    ) -> None:
        """Create a server.

        `quorum`: server number -> host and two ports (for followers, for elections), such as {1: "10.0.0.1:2888:3888",
        ...}; this server joins as number `server_id`. `stall_timeout_s`: how long the server may make no progress
        before its first response; None: until most of the others run. `jaas`: a file with the users of SASL logins, in
        the section Server.
        """
        super().__init__(host=host, port=port, data_dir=data_dir, stall_timeout_s=stall_timeout_s)
        self._server_id = server_id
        self._quorum = quorum or {}
        self._jaas = Path(jaas).resolve() if jaas is not None else None

    def _command(self, directory: Path) -> list[str]:
        runtime, jars = java_version()
        config, logging = directory / "zoo.cfg", directory / "log4j2.properties"
        config.write_text(self._config(directory))
        logging.write_text(LOGGING)
        with (directory / LOG).open("a") as output:
            output.write(f"{runtime}\n")
        durable = [] if self._given_dir else ["-Dzookeeper.forceSync=no"]
        users = [f"-Djava.security.auth.login.config={self._jaas}"] if self._jaas else []
        family = [] if self._has_ipv6() else [IPV4_ALONE]
        options = [*JVM_OPTIONS, *family, *durable, *users, f"-Dlog4j2.configurationFile={logging}"]
        return [runtime.command, *options, "-cp", jars, MAIN_CLASS, str(config)]

    def _working_directory(self) -> Path:
        """Return the server's directory, for what a JVM writes when it crashes."""
        return self._directory()

    def _has_ipv6(self) -> bool:
        """Whether this server, or another one of its ensemble, has an IPv6 address."""
        return family_of(self._host) == socket.AF_INET6 or any("[" in place for place in self._quorum.values())

    def _config(self, directory: Path) -> str:
        settings: dict[str, object] = {
            "dataDir": directory / ZOOKEEPER_DATA,
            "clientPort": self.port,
            "clientPortAddress": self._host,
            "tickTime": TICK_MS,
            "minSessionTimeout": TICK_MS,
            "maxSessionTimeout": 120_000,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr,ruok",
        }
        if self._jaas:
            settings["authProvider.1"] = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
        if self._quorum:
            settings |= {"initLimit": 20, "syncLimit": 8}
            settings |= {f"server.{number}": place for number, place in self._quorum.items()}
            (directory / ZOOKEEPER_DATA).mkdir(exist_ok=True)
            (directory / ZOOKEEPER_DATA / "myid").write_text(f"{self._server_id}\n")
        return "".join(f"{name}={value}\n" for name, value in settings.items())


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
