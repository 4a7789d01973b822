"""Clusters for tests of any framework, each as new: one process hosts them all, and starts one in a few milliseconds.

with Clusters() as clusters, clusters.running(brokers=3) as kafka:
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers})
    with kafka.faults(api="Produce", error="NOT_LEADER_OR_FOLLOWER", times=2):
        ...
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from anabranch.testing.running_cluster import RunningCluster

STOP_TIMEOUT_S: Final = 10


class CannotStart(RuntimeError):
    """A cluster could not be started; the message says why."""


class Clusters:
    """Starts clusters in one process beside this one, which begins with the first; a context manager."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    @contextlib.contextmanager
    def running(
        self,
        brokers: int = 1,
        *,
        properties: Mapping[str, str] | None = None,
        journal: int = 0,
        frames: bool = False,
        listeners: Sequence[str] = (),
        kafka: str = "",
    ) -> Iterator[RunningCluster]:
        """A cluster for the length of a block; there may be several at a time.

        Args:
            brokers: How many brokers, numbered from 1 on.
            properties: Broker properties by their Kafka names.
            journal: How many exchanges its journal keeps.
            frames: Keep their bytes, too, for captures.
            listeners: Several ways in, on free ports: `["SASL_PLAINTEXT://127.0.0.1:0"]`, and what they ask for in the
                properties.
            kafka: Which Kafka clients see: "4.1", or "1=3.9,2=4.1" in the middle of an upgrade; 3.9 if not said.

        Raises:
            CannotStart: A property does not exist, or has an impossible value.
        """
        wish = {"brokers": brokers, "properties": dict(properties or {}), "journal": journal, "frames": frames}
        wish |= {"listeners": list(listeners), "kafka": kafka}
        told = self._order({"start": wish})
        try:
            control = _client(told["control"]) if "control" in told else None
            yield RunningCluster(told["bootstrap"], control, told["listeners"])
        finally:
            self._order({"stop": told["cluster"]})

    def close(self) -> None:
        """End the process, and all clusters with it."""
        process, self._process = self._process, None
        if process is None:
            return
        with process:  # closes its pipes, which ends it
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # what it was told last, and had ended before
                process.stdin.close()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _order(self, order: dict[str, Any]) -> dict[str, Any]:
        if self._process is None:
            words = [sys.executable, "-m", "anabranch.testing.cluster_host"]
            self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdin is not None and self._process.stdout is not None
        line = ""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        if not line:
            raise CannotStart(f"the process of the clusters has ended, with status {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise CannotStart(answer["error"])
        return answer


def _client(url: str) -> Any:
    from anabranch.control.client import ControlClient

    return ControlClient(url)
