"""Processes of a chaos run that are restarted whenever they end, as a supervisor restarts an application's.

Faults kill and freeze them. Processes that have done nothing useful after several restarts have a faulty command, which
ends the run with what they printed last.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shlex
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from anabranch.cluster.zookeeper import die_with_parent

AGAIN_S: Final = 0.5
FRUITLESS: Final = 10
"""Restarts without any work of the processes, after which their command is given up."""
END_S: Final = 20.0
COMPLAINT_CHARS: Final = 400
PROC: Final = Path("/proc")


class ProcessesFailed(RuntimeError):
    """Processes cannot run; the message says why."""


class RestartedProcesses:
    """Processes that do one job together, each with a command of its own.

    Args:
        name: The name of the job; the processes are NAME-0, NAME-1 and so on.
        commands: The words of each process's command.
        log: The file for all that the processes print.
        has_worked: Whether any of the processes has done something useful.
    """

    def __init__(
        self, name: str, commands: Sequence[Sequence[str]], log: Path, *, has_worked: Callable[[], bool]
    ) -> None:
        self.name = name
        self.log = log
        self.killed = 0
        self.restarts = 0
        self._commands = commands
        self._has_worked = has_worked
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self._fruitless = 0

    @property
    def ended(self) -> int:
        """How often a process has ended by itself."""
        return max(0, self.restarts - self.killed)

    def tasks(self) -> list[asyncio.Task[None]]:
        """Run the processes; each task restarts one of them, and raises ProcessesFailed if that fails repeatedly."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        numbers = range(len(self._commands))
        return [asyncio.create_task(self._keep(number), name=f"{self.name}-{number}") for number in numbers]

    async def _keep(self, number: int) -> None:
        words = self._commands[number]
        while not self._stopping.is_set():
            process = self._running[number] = await self._start(words)
            try:
                await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            if self._stopping.is_set():
                return
            self.restarts += 1
            self._fruitless = 0 if self._has_worked() else self._fruitless + 1
            if self._fruitless >= FRUITLESS:
                raise ProcessesFailed(f"{shlex.join(words)} ends each time before any work: {self._complaint()}")
            await asyncio.sleep(AGAIN_S)

    async def _start(self, words: Sequence[str]) -> asyncio.subprocess.Process:
        if shutil.which(words[0]) is None:
            raise ProcessesFailed(f"{words[0]} cannot be run: no such program")
        with self.log.open("ab") as log_file:
            try:
                return await asyncio.create_subprocess_exec(
                    *die_with_parent(), *words, stdin=asyncio.subprocess.DEVNULL, stdout=log_file, stderr=log_file
                )
            except OSError as error:
                raise ProcessesFailed(f"{words[0]} cannot be run: {error}") from None

    def _complaint(self) -> str:
        return self.log.read_text(errors="replace")[-COMPLAINT_CHARS:].strip() or f"{self.log} is empty"

    def kill(self, rng: random.Random) -> str | None:
        """SIGKILL one of the processes; None if none runs."""
        number = self._victim(rng)
        if number is None:
            return None
        self._running[number].kill()
        self.killed += 1
        return f"{self.name}-{number} (pid {self._running[number].pid})"

    async def freeze(self, rng: random.Random, pause_s: float) -> str | None:
        """SIGSTOP one of the processes, and SIGCONT after a pause; None if none runs.

        After a pause beyond its session timeout it is a zombie: it holds records that others have received meanwhile.
        """
        number = self._victim(rng)
        if number is None:
            return None
        process = self._running[number]
        process.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(pause_s)
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGCONT)
        return f"{self.name}-{number} (pid {process.pid}) for {pause_s:.1f} s"

    def _victim(self, rng: random.Random) -> int | None:
        alive = [number for number, one in self._running.items() if one.returncode is None]
        return rng.choice(alive) if alive and not self._stopping.is_set() else None

    def states(self) -> Iterator[str]:
        """Yield the state of each process, and the end of what the processes have printed."""
        for number, process in self._running.items():
            ended = process.returncode is not None
            state = f"ended with {process.returncode}" if ended else f"state {state_of(process.pid)}"
            yield f"process {self.name}-{number} (pid {process.pid}): {state}"
        yield f"printed last: {self._complaint()}"

    async def stop(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        """End the processes, by SIGTERM and after a while by SIGKILL."""
        self._stopping.set()
        for process in self._running.values():
            if process.returncode is None:
                process.terminate()
                process.send_signal(signal.SIGCONT)  # a frozen process would not handle SIGTERM
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await asyncio.gather(*(one.wait() for one in self._running.values()))
        for task in tasks:
            task.cancel()  # kills processes that are still running
        await asyncio.gather(*tasks, return_exceptions=True)


def state_of(pid: int) -> str:
    """Return the kernel's letter for a process, such as S for sleeping and T for stopped; empty if it has ended."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
