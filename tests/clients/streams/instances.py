"""Instances of a streams application as real processes, and their output."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from anabranch import Consumer, ConsumerRecord, Producer
from anabranch.demo.child_process import Child, Line
from anabranch.runtime.task_dump import END

QUIET_S = 60.0
"""How long without progress counts as stalled, on slow machines too."""
ACCOUNT_BYTES = 12_000
ACCOUNT_TIMEOUT_S = 5.0


class Instance:
    """One process of an application; it keeps its state directory over restarts."""

    def __init__(
        self,
        name: str,
        topology: str,
        *,
        application_id: str,
        bootstrap: str,
        directory: Path,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.name = name
        self.status: Line = {}
        """The last status that it has printed."""
        self.log_path = directory / f"{name}.log"
        words = ["anabranch.cli.main", "streams", topology, "--bootstrap-servers", bootstrap, "--log-level", "info"]
        words += ["--application-id", application_id, "--state-dir", str(directory / name)]
        for setting, value in (settings or {}).items():
            words += ["--set", f"{setting}={value}"]
        self._words = words
        self._made_with = (topology, application_id, bootstrap, directory)
        self._child: Child | None = None
        self._changed = asyncio.Condition()

    def like(self, name: str, settings: Mapping[str, object]) -> Instance:
        """Create another instance of the same application."""
        topology, application_id, bootstrap, directory = self._made_with
        return Instance(
            name,
            topology,
            application_id=application_id,
            bootstrap=bootstrap,
            directory=directory,
            settings=settings,
        )

    async def start(self) -> Self:
        """Start the process, and wait until it works."""
        self.status = {}
        child = self._child = Child(self.name, self._words, log_path=self.log_path, on_line=self._hear)
        await child.start()
        await child.wait_for("started")
        return self

    async def stop(self) -> None:
        """Stop it with SIGTERM: it commits, leaves the group and closes its stores."""
        if self._child is not None:
            await self._child.stop()
            self._child = None

    async def kill(self) -> None:
        """Kill it with SIGKILL."""
        if self._child is not None:
            await self._child.kill()
            self._child = None

    @property
    def running(self) -> dict[str, list[Any]]:
        """The running tasks."""
        return {task: row for task, row in self.status.get("tasks", {}).items() if row[0] == "running"}

    @property
    def moves(self) -> dict[str, int]:
        """The counts of its state handovers, by name."""
        return dict(self.status.get("moves", {}))

    async def until(self, condition: Callable[[Instance], bool], what: str) -> None:
        """Wait until its status satisfies a condition. AssertionError if the status does not change for `QUIET_S`."""
        loop = asyncio.get_running_loop()
        status, changed_s = self.status, loop.time()
        while not condition(self):
            self.must_live()
            if self.status is not status:
                status, changed_s = self.status, loop.time()
            if loop.time() > changed_s + QUIET_S:
                raise AssertionError(f"{self.name}: not {what}, and nothing new for {QUIET_S:g} s; {status}")
            await asyncio.sleep(0.02)

    def must_live(self) -> None:
        """Raise AssertionError if it has ended by itself."""
        if self._child is not None and self._child.ended:
            raise AssertionError(f"{self.name} has ended: {self._child.log_tail()}")

    async def account(self) -> list[str]:
        """A failure description: its status, its newest log lines, its task dump."""
        lines = [f"said last: {self.status}"]
        if self._child is None:
            return [*lines, "is not there"]
        self._child.signal(signal.SIGQUIT)
        started_s = asyncio.get_running_loop().time()
        while END not in self._child.log_tail() and not self._child.ended:
            if asyncio.get_running_loop().time() > started_s + ACCOUNT_TIMEOUT_S:
                lines.append("does not answer a signal")
                break
            await asyncio.sleep(0.02)
        return [*lines, "has ended" if self._child.ended else "lives", self._child.log_tail(ACCOUNT_BYTES)]

    def _hear(self, _: str, line: Line) -> None:
        if line.get("event") == "status":
            self.status = line


async def send_all(producer: Producer, topic: str, rows: Iterable[tuple[bytes, bytes]], *, per_s: float = 0) -> int:
    """Send rows in order, at most `per_s` per second; returns their number."""
    loop = asyncio.get_running_loop()
    started_s, sent = loop.time(), 0
    for key, value in rows:
        await producer.send(topic, value, key)
        sent += 1
        if per_s and sent % 50 == 0:
            await asyncio.sleep(max(0.0, started_s + sent / per_s - loop.time()))
    await producer.flush()
    return sent


class Output:
    """Follows the output topic as a read_committed consumer: the last value of each key."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = Consumer(
            topic,
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            ordered_delivery=False,
            max_poll_records=5000,
        )
        self.table: dict[bytes, Any] = {}
        self.records = 0
        self.idle_s = 0.0
        """Seconds since the last record."""

    async def __aenter__(self) -> Self:
        await self._consumer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.stop()

    async def follow(self, until: Callable[[Output], bool]) -> None:
        """Read until a condition holds. AssertionError if no record comes for `QUIET_S` before."""
        loop = asyncio.get_running_loop()
        received_s = loop.time()
        while not until(self):
            batches = await self._consumer.getmany(timeout_ms=50)
            received_s = loop.time() if batches else received_s
            self.idle_s = loop.time() - received_s
            for rows in batches.values():
                self._take(rows)
            if self.idle_s > QUIET_S:
                raise AssertionError(f"the output is not complete, and nothing has come for {QUIET_S:g} s")

    def _take(self, rows: Iterable[ConsumerRecord]) -> None:
        for record in rows:
            self.records += 1
            assert record.key is not None and record.value is not None
            self.table[record.key] = json.loads(record.value)
