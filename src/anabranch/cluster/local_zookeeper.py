"""A real ZooKeeper server as a child process, from PySpark's jars, without an installation.

It is an ordinary server, alone or in an ensemble: small heap, no admin server, on 127.0.0.1 by default. `zookeeper` has
the life of its process. Source: ZooKeeper's administrator's guide.
"""

from __future__ import annotations

import importlib.util
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from anabranch.cluster.zookeeper import LOG, ZooKeeperProcess, ZooKeeperUnavailable
from anabranch.runtime.sockets import family_of
from anabranch.runtime.stall_detection import STALL_TIMEOUT_S
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
LOGGING: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n
"""
INSTEAD: Final = "or name a running ensemble with --zookeeper HOST:PORT"


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
