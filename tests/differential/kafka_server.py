"""Apache Kafka in ZooKeeper mode, for comparison with Anabranch.

Its jars are not part of this project. Point ANABRANCH_KAFKA_JARS at a directory that has kafka_2.13-3.9.0.jar and all
that it depends on, for example one that Maven has filled with

    mvn dependency:copy-dependencies -DoutputDirectory=...        # of a project that depends on kafka_2.13
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from anabranch.cluster.local_zookeeper import LocalZooKeeper
from anabranch.cluster.processes import known_brokers
from anabranch.cluster.zookeeper import die_with_parent
from anabranch.runtime.sockets import free_ports
from anabranch.runtime.startable import Startable
from anabranch.spark_jobs import java

VARIABLE: Final = "ANABRANCH_KAFKA_JARS"
READY_TIMEOUT_S: Final = 60.0
JVM_OPTIONS: Final = (
    "-Xms64m",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "-Djava.net.preferIPv4Stack=true",
)
LOGGING: Final = """\
log4j.rootLogger=WARN, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d %p %c{1}: %m%n
"""


def why_absent(*more: str) -> str | None:
    """What is missing here, or None if Kafka can run. `more`: other jars that are needed, without version."""
    given = os.environ.get(VARIABLE, "")
    for name in ("kafka_2.13", *more):
        if not given or not list(Path(given).glob(f"{name}-[0-9]*.jar")):
            return f"{VARIABLE}={given!r} has no {name} jar"
    return java.why_missing()


class KafkaCluster(Startable):
    """Brokers 1..n of Apache Kafka with a ZooKeeper of their own; `async with` starts and stops them."""

    def __init__(
        self,
        brokers: int = 1,
        *,
        properties: Mapping[str, str] | None = None,
        listeners: Sequence[str] = (),
        jvm_options: Sequence[str] = JVM_OPTIONS,
    ) -> None:
        self._ids = range(1, brokers + 1)
        self._properties = properties or {}
        self._listeners = listeners
        self._jvm_options = jvm_options
        self._zookeeper = LocalZooKeeper()
        self._directory = tempfile.TemporaryDirectory(prefix="kafka-", ignore_cleanup_errors=True)
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._ports: dict[int, int] = {}

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        """Where each broker listens."""
        return {node_id: ("127.0.0.1", port) for node_id, port in self._ports.items()}

    @property
    def pids(self) -> dict[int, int]:
        """The process of each broker."""
        return {node_id: process.pid for node_id, process in self._processes.items()}

    @property
    def bootstrap_servers(self) -> str:
        """Where clients begin."""
        return ",".join(f"{host}:{port}" for host, port in self.addresses.values())

    async def start(self) -> None:
        """Start ZooKeeper and the brokers; returns when every broker knows every other."""
        await self._zookeeper.start()
        self._ports = dict(zip(self._ids, free_ports("127.0.0.1", len(self._ids)), strict=True))
        for node_id in self._ids:
            await self._start(node_id)
        async with asyncio.timeout(READY_TIMEOUT_S):
            for node_id, (host, port) in self.addresses.items():
                while await known_brokers(host, port) != len(self._ids):
                    if self._processes[node_id].returncode is not None:
                        raise RuntimeError(f"Kafka's broker {node_id} ended:\n{self.log_of(node_id)[-3000:]}")
                    await asyncio.sleep(0.1)

    async def stop(self) -> None:
        """Kill everything."""
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        await self._zookeeper.stop()
        self._directory.cleanup()

    def log_of(self, node_id: int) -> str:
        """What a broker has written so far."""
        return (Path(self._directory.name) / f"broker-{node_id}.log").read_text(errors="replace")

    async def _start(self, node_id: int) -> None:
        directory = Path(self._directory.name)
        settings = {
            "broker.id": node_id,
            "listeners": ",".join([f"PLAINTEXT://127.0.0.1:{self._ports[node_id]}", *self._listeners]),
            "log.dirs": directory / f"broker-{node_id}",
            "zookeeper.connect": self._zookeeper.hosts,
            **self._properties,
        }
        config, logging = directory / f"broker-{node_id}.properties", directory / "log4j.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        logging.write_text(LOGGING)
        jars = os.environ[VARIABLE]
        options = [*self._jvm_options, f"-Dlog4j.configuration=file:{logging}"]
        with (directory / f"broker-{node_id}.log").open("ab") as output:
            self._processes[node_id] = await asyncio.create_subprocess_exec(
                *(*die_with_parent(), java.find().command, *options, "-cp", f"{jars}/*", "kafka.Kafka", str(config)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
