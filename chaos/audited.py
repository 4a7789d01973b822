"""The audit of a chaos run: as a stream during the run and as a batch job afterwards, compared in one report.

The audit runs as for its users, in processes of its own. Equal means byte for byte: the verdict, the counts of each
generation, and the stories of all violations, sorted.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from anabranch.broker.config.properties_file import properties_text
from anabranch.chaos.clients import TOPIC
from anabranch.report.timeline import Moment
from anabranch.runtime.private_files import write_private_file
from anabranch.runtime.stall_detection import Stalled, process_progress, wait_while_progressing

if TYPE_CHECKING:
    from anabranch.chaos.run import Say

STREAM: Final = "stream"
BATCH: Final = "batch"
EVENTS: Final = "events.jsonl"
CLIENT: Final = "client.properties"
"""The properties of the audit's clients: only the user may read this file."""
REPORT: Final = "report.html"
POLL_S: Final = 0.2
LOG_TAIL_BYTES: Final = 1500

T = TypeVar("T")


class AuditFailed(RuntimeError):
    """The audit gave no verdict; the message says why."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcomes of the audit as a stream and as a batch job."""

    stream: dict[str, Any]
    batch: dict[str, Any]
    stream_lines: list[str]
    batch_lines: list[str]

    @property
    def equal(self) -> bool:
        """Whether the two outcomes are equal."""
        names = ("verdict", "rows", "hand_offs")
        same = all(
            json.dumps(self.stream[name], sort_keys=True) == json.dumps(self.batch[name], sort_keys=True)
            for name in names
        )
        return same and self.stream_lines == self.batch_lines

    @property
    def clean(self) -> bool:
        """Whether there are deliveries and no violations."""
        return bool(self.stream["clean"]) and self.stream["verdict"]["delivered"] > 0


class AuditCompanion:
    """Audits the deliveries that the readers of a run write into the audit topic."""

    def __init__(self, directory: Path, say: Say, topic: str = TOPIC) -> None:
        self._directory = directory
        self._say = say
        self._topic = topic
        self._servers = ""
        self._stream: asyncio.subprocess.Process | None = None
        self.comparison: Comparison | None = None

    async def begin(self, servers: str, client: Mapping[str, str]) -> None:
        """Start the stream, and wait until it runs: it then audits while faults happen."""
        self._servers = servers
        self._directory.mkdir(parents=True, exist_ok=True)
        write_private_file(self._directory / CLIENT, properties_text(client).encode())
        self._stream = await self._start(STREAM, "--follow")
        metadata = self._of(STREAM) / "checkpoint" / "metadata"
        await self._wait(STREAM, self._stream, self._has_started(self._stream, metadata))
        self._say("the audit has begun")

    async def end(self, moments: Sequence[Moment]) -> None:
        """End the stream with its verdict, audit again as a batch job, compare, and write the report."""
        from anabranch.audit.findings import write_events

        assert self._stream is not None, "begun"
        write_events(self._directory / EVENTS, moments)
        self._stream.send_signal(signal.SIGINT)
        await self._judged(STREAM, self._stream)
        self._say("the stream is done; now the batch job")
        await self._judged(BATCH, await self._start(BATCH, "--backfill", "--copy", str(self._directory / "copy")))
        self.comparison = await asyncio.get_running_loop().run_in_executor(None, self._compare)
        await asyncio.get_running_loop().run_in_executor(None, self._report)

    async def stop(self) -> None:
        """End the running processes."""
        if self._stream is not None and self._stream.returncode is None:
            self._stream.terminate()
            await self._stream.wait()

    def lines(self) -> list[str]:
        """Return the verdict as text."""
        if self.comparison is None:
            return ["no verdict of the audit"]
        verdict = self.comparison.stream["verdict"]
        counts = ", ".join(f"{verdict[name]:,} {name.replace('_', ' ')}" for name in ("delivered", "redelivered"))
        return [
            f"audit: {counts}; {'nothing was violated' if self.comparison.clean else 'VIOLATIONS'}",
            f"audit: stream and batch job {'agree' if self.comparison.equal else 'DIFFER'}",
            f"report: {self._directory / REPORT}",
        ]

    @property
    def audit_topic(self) -> str:
        """The topic to which readers write their deliveries."""
        return f"{self._topic}-audit"

    @property
    def good(self) -> bool:
        """Whether both audits agree that there are no violations."""
        return self.comparison is not None and self.comparison.clean and self.comparison.equal

    async def _start(self, name: str, *words: str) -> asyncio.subprocess.Process:
        common = ["--bootstrap-servers", self._servers, "--topic", self.audit_topic, "--expect", self._topic]
        common += ["--command-config", str(self._directory / CLIENT)]
        out = ["--out", str(self._directory / name)]
        with self._log(name).open("ab") as log_file:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "anabranch.cli.main", "audit", *common, *out, *words),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
            )

    async def _judged(self, name: str, process: asyncio.subprocess.Process) -> None:
        try:
            status = await self._wait(name, process, process.wait())
        except AuditFailed:
            process.terminate()
            await process.wait()
            raise
        if status not in (0, 1):
            raise AuditFailed(f"the audit ended with status {status}\n{self._log_tail(name)}")

    async def _has_started(self, process: asyncio.subprocess.Process, metadata: Path) -> None:
        while not metadata.exists():  # noqa: ASYNC240  # one stat
            if process.returncode is not None:
                raise AuditFailed(f"the audit ended with status {process.returncode}\n{self._log_tail(STREAM)}")
            await asyncio.sleep(POLL_S)

    async def _wait(self, name: str, process: asyncio.subprocess.Process, step: Coroutine[Any, Any, T]) -> T:
        log_path = self._log(name)
        try:
            return await wait_while_progressing(step, lambda: process_progress(process.pid, log_path))
        except Stalled as error:
            raise AuditFailed(f"the audit makes no progress: {error}\n{self._log_tail(name)}") from None

    def _log_tail(self, name: str) -> str:
        text = self._log(name).read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
        return f"{text}\n(from {self._log(name)})"

    def _of(self, name: str) -> Path:
        return self._directory / name / self.audit_topic / ("backfill" if name == BATCH else "")

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def _compare(self) -> Comparison:
        from anabranch.audit import results
        from anabranch.spark_jobs import violations

        verdicts = [json.loads((self._of(name) / results.VERDICT).read_text()) for name in (STREAM, BATCH)]
        lines = [
            sorted(json.dumps(story, sort_keys=True) for story in violations.read(self._of(name) / "violations"))
            for name in (STREAM, BATCH)
        ]
        return Comparison(*verdicts, *lines)

    def _report(self) -> None:
        from anabranch.audit import report, results
        from anabranch.audit.findings import read_events
        from anabranch.spark_jobs.audit import Target
        from anabranch.spark_jobs.scope import Scope

        assert self.comparison is not None
        target = Target(self._servers, self.audit_topic, self._of(STREAM), Scope(self._topic))
        moments = read_events(self._directory / EVENTS)
        findings = results.of_stream(target, self.comparison.stream["verdict"], moments)
        agree = "with the same result" if self.comparison.equal else "with ANOTHER result"
        findings.how = f"during the run, and again as a batch job {agree}"
        report.write(self._directory / REPORT, findings)
