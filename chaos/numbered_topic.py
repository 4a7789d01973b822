"""A Streams application in a chaos run: its instances are processes, and its output shows whether state follows keys.

The application numbers the records of each key (`numbering_application`), exactly once. Instances are killed and
frozen, and keep their state directories. At the end each acknowledged record has one committed output, those of a key
are in order, and their numbers have no gap: a store that lost, repeated or left behind a step shows in the next number.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from anabranch import Admin
from anabranch.chaos import archive, numbering_application
from anabranch.chaos.history import Place, Send
from anabranch.chaos.numbering_application import NUMBERED, SEPARATOR
from anabranch.chaos.output_topic import OutputTopic, judge_outputs
from anabranch.chaos.restarted_processes import RestartedProcesses
from anabranch.chaos.side_topic import has_committed
from anabranch.clients.security import SecurityArguments
from anabranch.cluster.node_process import COMMAND_MODULE

APPLICATION: Final = "numbering"
SETTINGS: Final = {
    "session_timeout_ms": "6000",
    "heartbeat_interval_ms": "1000",
    "rebalance_timeout_ms": "8000",
    "probing_rebalance_interval_ms": "60000",
    "num_standby_replicas": "1",
    "replication_factor": "3",
}


class NumberedTopic:
    """The topic of numbered records, and the instances that write it."""

    awaited = "every record is numbered"

    def __init__(
        self,
        servers: str,
        directory: Path,
        *,
        instances: int,
        access: SecurityArguments,
        client_properties: Mapping[str, str],
    ) -> None:
        """Prepare the topic; `directory` is for the instances' state and log."""
        self.output = OutputTopic(NUMBERED, servers, access=access)
        self._directory = directory
        self._client_properties = client_properties
        log = directory / f"{APPLICATION}.log"
        self.processes = RestartedProcesses(
            APPLICATION,
            [self._command(servers, number) for number in range(instances)],
            log,
            has_worked=lambda: b'"started"' in log.read_bytes(),
        )
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def _login(self) -> Path:
        return self._directory / "client.properties"

    def _command(self, servers: str, number: int) -> list[str]:
        words = [sys.executable, "-m", COMMAND_MODULE, "streams", f"{numbering_application.__name__}:topology"]
        words += ["--bootstrap-server", servers, "--application-id", APPLICATION]
        words += ["--state-dir", str(self._directory / f"{APPLICATION}-{number}")]
        words += ["--config", f"client_id={APPLICATION}-{number}"]
        for name, value in SETTINGS.items():
            words += ["--config", f"{name}={value}"]
        return [*words, "--command-config", str(self._login)] if self._client_properties else words

    async def begin(self, admin: Admin) -> list[asyncio.Task[None]]:
        """Create the topic, and start all instances; a task that ends early has failed."""
        await self.output.create(admin)
        self._directory.mkdir(parents=True, exist_ok=True)
        if self._client_properties:
            self._login.touch(0o600)
            self._login.write_text("".join(f"{name}={value}\n" for name, value in self._client_properties.items()))
        self._tasks = self.processes.tasks()
        return list(self._tasks)

    def end_of_faults(self) -> None:
        """Nothing: the instances go on."""

    async def done(self, admin: Admin, ends: Mapping[Place, int]) -> bool:
        """Whether the application has committed all that is acknowledged."""
        return await has_committed(admin, APPLICATION, ends)

    async def stop(self) -> None:
        """End all instances."""
        await self.processes.stop(self._tasks)

    async def failures(self) -> list[str]:
        """Read all committed output; return why it cannot be read, and every bug in an instance's log."""
        logs = [self.processes.log] if self.processes.log.exists() else []
        return [*await self.output.read(), *archive.tracebacks(logs)]

    def judge(self, sends: Sequence[Send]) -> Iterator[str]:
        """Yield every violation."""
        numbered = [(key, *value.split(SEPARATOR, 1)) for key, value in self.output.rows]
        yield from judge_outputs(NUMBERED, [(key, value) for key, _, value in numbered], sends)
        last: dict[str, int] = {}
        for key, number, value in numbered:
            if int(number) != last.get(key, 0) + 1:
                yield f"{NUMBERED}: {value} has number {number}, and the output before it {last.get(key, 0)}"
            last[key] = int(number)

    def summary(self) -> str:
        """Summarize the application in one line."""
        return (
            f"{APPLICATION}: {len(self.output.rows)} records numbered, {self.processes.killed} instances killed, "
            f"{self.processes.ended} ended by themselves"
        )
