"""Fresh clusters for tests in any framework: one process hosts them all, and starts one in a few milliseconds.

with Clusters() as clusters, clusters.running(brokers=3) as kafka:
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers})
    with kafka.faults(api="Produce", error="NOT_LEADER_OR_FOLLOWER", times=2):
        ...
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from anabranch.protocol.suggestion import suggest_arguments
from anabranch.testing.launched_cluster import CannotStart as CannotStart
from anabranch.testing.launched_cluster import client_of
from anabranch.testing.running_cluster import RunningCluster

if TYPE_CHECKING:
    from anabranch.testing.process_clusters import ProcessClusters

STOP_TIMEOUT_S: Final = 10


@suggest_arguments
class Clusters:
    """Starts clusters in a child process, which begins with the first cluster; a context manager."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._processes: ProcessClusters | None = None

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
        """Run a fresh cluster while the block runs; several may run at a time.

        Args:
            brokers: The number of brokers, with ids from 1 on.
            properties: Broker properties by their Kafka names.
            journal: The size of the journal, in exchanges.
            frames: Keep the bytes of exchanges, too, for captures.
            listeners: Several listeners, on free ports: `["SASL_PLAINTEXT://127.0.0.1:0"]`; their settings are
                properties.
            kafka: The compatibility profile: "4.1", or "1=3.9,2=4.1" in the middle of an upgrade; default 3.9.

        Raises:
            CannotStart: A property does not exist, or has an impossible value.
        """
        _check(brokers, journal, kafka, properties or {})
        if isinstance(listeners, str):
            raise CannotStart(f"listeners must be a list: [{listeners!r}]")
        options = {"brokers": brokers, "properties": dict(properties or {}), "journal": journal, "frames": frames}
        options |= {"listeners": list(listeners), "kafka": kafka}
        process = self._living_process()
        started = _answer(process, {"start": options})
        try:
            control = client_of(started["control"]) if "control" in started else None
            yield RunningCluster(started["bootstrap"], control, started["listeners"])
        finally:
            if process is self._process:  # otherwise `close` has ended it
                _answer(process, {"stop": started["cluster"]})

    @contextlib.contextmanager
    def running_processes(
        self,
        brokers: int = 3,
        *,
        properties: Mapping[str, str] | None = None,
        journal: int = 0,
        frames: bool = False,
        kafka: str = "",
    ) -> Iterator[RunningCluster]:
        """Run an empty cluster of processes while the block runs.

        The cluster starts in seconds. It is kept for the next block with the same settings, which gets it emptied.

        Args:
            brokers: The number of brokers, with ids from 1 on.
            properties: Broker properties by their Kafka names. The ZooKeeper session timeout is 3 s by default.
            journal: The size of the journal, in exchanges.
            frames: Keep the bytes of exchanges, too, for captures.
            kafka: The compatibility profile; see `running`.

        Raises:
            CannotStart: A property does not exist, or has an impossible value.
            ProcessesUnavailable: The extra `control` is missing.
        """
        from anabranch.testing.process_clusters import ProcessClusters, ProcessSettings

        _check(brokers, journal, kafka, properties or {})
        if self._processes is None:
            self._processes = ProcessClusters()
        settings = ProcessSettings(brokers, dict(properties or {}), journal, frames, kafka)
        with self._processes.running(settings) as cluster:
            yield cluster

    def close(self) -> None:
        """End the child process with all its clusters, and the cluster of processes."""
        if self._processes is not None:
            self._processes.close()
        self._end_host()

    def _end_host(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with process:  # closes its pipes, which ends it
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # the process ended before it read the last command
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

    def _living_process(self) -> subprocess.Popen[str]:
        """The child process; a new one if there is none or it has ended."""
        if self._process is not None and self._process.poll() is not None:
            self._end_host()
        if self._process is None:
            words = [sys.executable, "-m", "anabranch.testing.cluster_host"]
            self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self._process


def _answer(process: subprocess.Popen[str], order: dict[str, Any]) -> dict[str, Any]:
    """Have a process execute a command. CannotStart if it fails, or if the process ends.

    A process whose answer is not awaited, as a timeout of the test has interrupted the wait, is killed: the next
    command would get that answer.
    """
    assert process.stdin is not None and process.stdout is not None
    line = ""
    try:
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
    except BrokenPipeError:
        pass
    except BaseException:
        process.kill()
        process.wait()
        raise
    if not line:
        raise CannotStart(
            f"the process of the clusters has ended, {_why(process.wait())}; the next cluster starts a new one"
        )
    answer: dict[str, Any] = json.loads(line)
    if "error" in answer:
        raise CannotStart(answer["error"])
    return answer


def _why(status: int) -> str:
    """How a process has ended, by its status; its own output is on stderr."""
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"


def _check(brokers: int, journal: int, kafka: str, properties: Mapping[str, str]) -> None:
    """Raise CannotStart for a value of the wrong type."""
    _check_number("brokers", brokers, least=1)
    _check_number("journal", journal, least=0)
    for name, value in {"kafka": kafka, **properties}.items():
        if not isinstance(value, str):
            raise CannotStart(f"{name} is a string, such as '{value}', not {value!r}")


def _check_number(name: str, value: object, *, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise CannotStart(f"{name} must be a number of at least {least}, not {value!r}")
