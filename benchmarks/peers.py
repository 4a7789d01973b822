"""The clusters to measure, each in a fresh process: `anabranch up`, and librdkafka's mock cluster.

The mock cluster is the natural peer: three brokers in one process, no JVM, in memory, compiled C. It has no replicas
(acks=all is acks=1 there), keeps at most 5 MiB of a partition, and checks next to nothing; it shows how fast a small
cluster for tests can be.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

READY_MARK: Final = "bootstrap="
MOCK: Final = """
import sys
from confluent_kafka import Producer
producer = Producer({"test.mock.num.brokers": 3, "log_level": 0})
brokers = producer.list_topics(timeout=10).brokers.values()
print("ready bootstrap=" + ",".join(f"{one.host}:{one.port}" for one in brokers), flush=True)
sys.stdin.read()
"""
QUIET: Final[dict[str, Any]] = {"log_level": 0, "error_cb": lambda _: None}
"""Client settings that suppress errors when a cluster stops at the end of a measurement."""


@dataclass(slots=True)
class Peer:
    """A running cluster."""

    process: subprocess.Popen[str]
    bootstrap: str
    started_s: float
    """The start of its process, on `time.perf_counter`."""
    ready_s: float

    @property
    def resident_mb(self) -> float:
        """The resident memory of the process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) / 1024

    @property
    def processor_s(self) -> tuple[float, float]:
        """Seconds that its threads ran, and that they waited for a core."""
        ran_ns = waited_ns = 0
        for thread in Path(f"/proc/{self.process.pid}/task").glob("*/schedstat"):
            ran, waited, _ = map(int, thread.read_text().split())
            ran_ns, waited_ns = ran_ns + ran, waited_ns + waited
        return ran_ns / 1e9, waited_ns / 1e9


def anabranch_command() -> list[str]:
    return [str(Path(sysconfig.get_path("scripts")) / "anabranch"), "up", "--port", "0"]


def mock_command() -> list[str]:
    """A fresh interpreter that only hosts librdkafka's mock cluster."""
    return [sys.executable, "-c", MOCK]


COMMANDS: Final[dict[str, Callable[[], list[str]]]] = {"anabranch": anabranch_command, "mock": mock_command}


def running(name: str, *options: str) -> AbstractContextManager[Peer]:
    """Run a cluster in its own process while the block runs; `options` are for its command."""
    return running_command(name, [*COMMANDS[name](), *options])


@contextmanager
def running_command(name: str, command: list[str]) -> Iterator[Peer]:
    """Run a server in its own process while the block runs."""
    # Bytecode is cached, as usual: an installed program is compiled once.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    started_s = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if name == "mock" else None,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        ready_s = time.perf_counter()
        if READY_MARK not in line:
            raise RuntimeError(f"{name} said {line!r} instead of being ready")
        yield Peer(process, line.strip().partition(READY_MARK)[2], started_s, ready_s)
    finally:
        process.terminate()
        process.communicate()


def produce_one(bootstrap: str, topic: str) -> float:
    """Produce one record with librdkafka's defaults; returns the time of its acknowledgement."""
    acknowledged_s: list[float] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            raise RuntimeError(f"the first record was refused: {error}")
        acknowledged_s.append(time.perf_counter())

    producer = Producer({"bootstrap.servers": bootstrap, **QUIET})
    producer.produce(topic, b"the first record", on_delivery=delivered)
    while not acknowledged_s:
        producer.poll(1)
    return acknowledged_s[0]
