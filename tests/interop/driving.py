"""Runs a driver (see `drivers/common.py`) as a process and collects its output."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

PATIENCE_S = 90.0
STOP_S = 60.0

Record = tuple[str, str]


class Driver:
    """One run of one client."""

    def __init__(self, command: Sequence[str], name: str, **arguments: Any) -> None:
        self.what = f"{command[-1].rpartition('/')[2]} {name}"
        self.events: list[dict[str, Any]] = []
        self._changed = threading.Condition(threading.RLock())
        self._hear: Callable[[dict[str, Any]], None] = lambda event: None
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  # it lives as long as the process
        self._process = subprocess.Popen(
            [*command, name, json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            start_new_session=True,  # so that what it starts is killed with it
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def told(self, *events: str) -> list[dict[str, Any]]:
        """Return the events of these kinds."""
        with self._changed:
            return [one for one in self.events if one["event"] in events]

    def listen(self, hear: Callable[[dict[str, Any]], None]) -> None:
        """Call a listener for each event, from the first on."""
        with self._changed:
            for one in self.events:
                hear(one)
            self._hear = hear

    @property
    def records(self) -> list[Record]:
        """Keys and values that it has consumed."""
        return [(one["key"], one["value"]) for one in self.told("record")]

    @property
    def values(self) -> set[str]:
        """The values that it has consumed."""
        return {value for _, value in self.records}

    @property
    def acked(self) -> set[str]:
        """The values that were acknowledged."""
        return {one["value"] for one in self.told("acked")}

    @property
    def owned(self) -> set[int]:
        """The partitions that it has now."""
        partitions: set[int] = set()
        for one in self.told("assigned", "revoked"):
            partitions = (
                partitions | set(one["partitions"])
                if one["event"] == "assigned"
                else partitions - set(one["partitions"])
            )
        return partitions

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def until(self, condition: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
        """Wait for a condition of any process."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not condition():
                left_s = deadline - time.monotonic()
                assert left_s > 0, f"{self.what}: gave up waiting for {what}; {self._story()}"
                assert not self.ended or self._process.returncode == 0, f"{self.what} failed; {self._story()}"
                self._changed.wait(min(left_s, 0.1))

    def finish(self, timeout_s: float = PATIENCE_S) -> None:
        """Wait until its work is done."""
        self.until(lambda: self.ended, "its end", timeout_s)
        self._reader.join(STOP_S)
        assert self._process.returncode == 0, f"{self.what} failed; {self._story()}"

    def stop(self) -> None:
        """Stop the driver, and wait until it has ended."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self.finish(STOP_S)

    def kill(self) -> None:
        """Kill it and what it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(STOP_S)

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        assert self._process.stdin is not None and self._process.stdout is not None
        for stream in (self._process.stdin, self._process.stdout, self._stderr):
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                with contextlib.suppress(ValueError):  # a library's greeting on stdout
                    one = json.loads(line)
                    if isinstance(one, dict):
                        self.events.append(one)
                        self._hear(one)
                self._changed.notify_all()

    def _story(self) -> str:
        self._stderr.seek(0)
        said = self._stderr.read().decode(errors="replace")[-3000:]
        with self._changed:
            kinds = [one["event"] for one in self.events]
            others = [one for one in self.events if one["event"] not in ("record", "acked")]
        return f"{ {kind: kinds.count(kind) for kind in set(kinds)} }, last {others[-5:]}, it said:\n{said}"
