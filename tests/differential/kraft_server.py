"""Apache Kafka 4 as a KRaft quorum: nodes that are broker and controller.

Point ANABRANCH_KAFKA_4_JARS at a directory that has kafka_2.13-4.1.1.jar and all that it depends on, and log4j-core and
log4j-slf4j-impl (see `kafka_server`).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from anabranch.cluster.processes import known_brokers
from anabranch.cluster.zookeeper import die_with_parent
from anabranch.runtime.sockets import free_ports
from anabranch.runtime.startable import Startable
from anabranch.spark_jobs import java
from tests.differential import telemetry_receiver
from tests.differential.kafka_server import JVM_OPTIONS, READY_TIMEOUT_S

VARIABLE: Final = "ANABRANCH_KAFKA_4_JARS"
CLUSTER_ID: Final = base64.urlsafe_b64encode(b"anabranch-kraft!").rstrip(b"=").decode()
LOGGING: Final = """\
Configuration:
  Loggers:
    Root:
      level: WARN
"""


def why_absent(version: str = "4") -> str | None:
    """What is missing here, or None if this version of Kafka 4 can run."""
    given = os.environ.get(VARIABLE, "")
    if not given or not list(Path(given).glob(f"kafka_2.13-{version}.*.jar")):
        return f"{VARIABLE}={given!r} has no kafka_2.13 jar of a Kafka {version}"
    return java.why_missing()


def version_of_jars() -> str:
    """Return the version of Kafka 4 that runs here, such as "4.1"; `why_absent` must be None."""
    jar = next(Path(os.environ[VARIABLE]).glob("kafka_2.13-4.*.jar"))
    return ".".join(jar.stem.partition("-")[2].split(".")[:2])


class KraftCluster(Startable):
    """Nodes 1..n of Apache Kafka 4; `async with` starts and stops them."""

    def __init__(
        self, brokers: int = 1, *, properties: Mapping[str, str] | None = None, telemetry: bool = False
    ) -> None:
        self._ids = range(1, brokers + 1)
        self._properties = {name: text for name, text in (properties or {}).items() if "zookeeper" not in name}
        if telemetry:
            self._properties["metric.reporters"] = telemetry_receiver.SOURCE.stem
        self._telemetry = telemetry
        self._directory = tempfile.TemporaryDirectory(prefix="kraft-", ignore_cleanup_errors=True)
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._ports: dict[int, int] = {}

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        """Where each broker listens."""
        return {node_id: ("127.0.0.1", port) for node_id, port in self._ports.items()}

    async def start(self) -> None:
        """Format, and start the nodes; returns when every broker knows every other."""
        ports = free_ports("127.0.0.1", 2 * len(self._ids))
        self._ports = dict(zip(self._ids, ports, strict=False))
        quorum = dict(zip(self._ids, ports[len(self._ids) :], strict=True))
        if self._telemetry:
            telemetry_receiver.build(os.environ[VARIABLE], Path(self._directory.name))
        for node_id in self._ids:
            await self._start(node_id, quorum)
        async with asyncio.timeout(READY_TIMEOUT_S):
            for node_id, (host, port) in self.addresses.items():
                while await known_brokers(host, port) != len(self._ids):
                    if self._processes[node_id].returncode is not None:
                        told = self._log_path(node_id).read_text()[-3000:]
                        raise RuntimeError(f"Kafka's node {node_id} ended:\n{told}")
                    await asyncio.sleep(0.1)

    async def stop(self) -> None:
        """Kill everything."""
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        self._directory.cleanup()

    def _log_path(self, node_id: int) -> Path:
        return Path(self._directory.name) / f"node-{node_id}.log"

    async def _start(self, node_id: int, quorum: Mapping[int, int]) -> None:
        directory = Path(self._directory.name)
        settings = {
            "node.id": node_id,
            "process.roles": "broker,controller",
            "controller.quorum.voters": ",".join(f"{one}@127.0.0.1:{port}" for one, port in quorum.items()),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{self._ports[node_id]},CONTROLLER://127.0.0.1:{quorum[node_id]}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self._ports[node_id]}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": directory / f"node-{node_id}",
            **self._properties,
        }
        config, logging = directory / f"node-{node_id}.properties", directory / "log4j2.yaml"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        logging.write_text(LOGGING)
        program = [java.find().command, *JVM_OPTIONS, f"-Dlog4j2.configurationFile={logging}"]
        program += ["-cp", f"{os.environ[VARIABLE]}/*:{directory}"]
        with self._log_path(node_id).open("ab") as output:
            sinks = {"stdin": asyncio.subprocess.DEVNULL, "stdout": output, "stderr": output}
            words = ["kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID, "--config", str(config)]
            formatting = await asyncio.create_subprocess_exec(*program, *words, **sinks)  # type: ignore[arg-type]
            if await formatting.wait():
                raise RuntimeError(f"Kafka cannot be formatted:\n{self._log_path(node_id).read_text()[-3000:]}")
            self._processes[node_id] = await asyncio.create_subprocess_exec(
                *die_with_parent(),
                *program,
                "kafka.Kafka",
                str(config),
                **sinks,  # type: ignore[arg-type]
            )
