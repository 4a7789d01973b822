"""The child processes of the demonstration besides the cluster: their output is JSON lines, their logs go to files."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from anabranch.runtime.stall_detection import STALL_TIMEOUT_S, Stalled, process_progress, wait_while_progressing

STOP_TIMEOUT_S: Final = 20.0
LOG_TAIL_BYTES: Final = 1500
ERROR: Final = "error"
"""The event that reports a failed request."""
LINE_BYTES_MAX: Final = 4 * 1024 * 1024

Line = Mapping[str, Any]


class ChildProcessFailed(RuntimeError):
    """A process of the demonstration ended, or made no progress; the message has its last log lines."""


class Child:
    """One process, `python -m MODULE ...`; passes each output line to `on_line`."""

    def __init__(
        self, name: str, words: Sequence[str], *, log_path: Path, on_line: Callable[[str, Line], None]
    ) -> None:
        self.name = name
        self._words = words
        self._log_path = log_path
        self._on_line = on_line
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._seen: dict[str, Line] = {}
        self._latest: dict[str, Line] = {}
        self._changes = 0
        """The number of lines that differ from the previous one of the same event in more than the time."""
        self._changed = asyncio.Condition()

    async def start(self) -> None:
        """Start the process, and read its output."""
        with self._log_path.open("ab") as log_file:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                *self._words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log_file,
                limit=LINE_BYTES_MAX,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        self._reader = asyncio.create_task(self._read(), name=f"lines of {self.name}")

    async def wait_for(self, event: str, *, stall_timeout_s: float = STALL_TIMEOUT_S) -> Line:
        """Wait for the next line with this event.

        Raises ChildProcessFailed if the process ends, or makes no progress for `stall_timeout_s`.
        """
        assert self._reader is not None, "started"
        try:
            await wait_while_progressing(self._line_of(event), self._progress, stall_timeout_s=stall_timeout_s)
        except Stalled as error:
            raise ChildProcessFailed(f"{self.name} did not say {event!r}: {error}\n{self.log_tail()}") from None
        if ERROR in self._seen:
            raise ChildProcessFailed(f"{self.name}: {self._seen.pop(ERROR).get('text')}")
        if event not in self._seen:
            raise ChildProcessFailed(f"{self.name} ended before it said {event!r}\n{self.log_tail()}")
        return self._seen.pop(event)

    async def _line_of(self, event: str) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: event in self._seen or ERROR in self._seen or self.ended)

    def _progress(self) -> tuple[int, ...]:
        assert self._process is not None, "started"
        return self._changes, *process_progress(self._process.pid, self._log_path)

    async def send_line(self, text: str) -> None:
        """Write one line to its standard input."""
        assert self._process is not None and self._process.stdin is not None, "started"
        self._process.stdin.write(text.encode() + b"\n")
        await self._process.stdin.drain()

    async def stop(self) -> int:
        """Send SIGTERM, then SIGKILL if the process does not end. Returns its exit status."""
        if self._process is None:
            return 0
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            try:
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await self._process.wait()
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    self._process.kill()
                await self._process.wait()
        if self._reader is not None:
            await self._reader
        return self._process.returncode or 0

    async def kill(self) -> None:
        """Send SIGKILL: the process flushes nothing, and leaves its group without notice."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        if self._reader is not None:
            await self._reader

    def signal(self, number: int) -> None:
        """Send a signal, if the process runs."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def log_tail(self, size_bytes: int = LOG_TAIL_BYTES) -> str:
        """The last lines of its log."""
        if not self._log_path.exists():
            return ""
        return self._log_path.read_bytes()[-size_bytes:].decode(errors="replace")

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self._reader is not None and self._reader.done()

    @property
    def failed(self) -> bool:
        """Whether the process ended with an error."""
        return self._process is not None and bool(self._process.returncode)

    async def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        try:
            async for raw in self._process.stdout:
                try:
                    line = json.loads(raw)
                except ValueError:
                    continue  # an unrelated line that a library has printed
                if isinstance(line, dict):
                    await self._take(line)
        finally:
            asyncio.get_running_loop().call_soon(self._announce_end)

    async def _take(self, line: Line) -> None:
        event = str(line.get("event", ""))
        fields = {name: value for name, value in line.items() if name != "t"}
        if fields != self._latest.get(event):
            self._latest[event] = fields
            self._changes += 1
        self._on_line(self.name, line)
        async with self._changed:
            self._seen[event] = line
            self._changed.notify_all()

    def _announce_end(self) -> None:
        async def announce() -> None:
            async with self._changed:
                self._changed.notify_all()

        self._farewell = asyncio.ensure_future(announce())
