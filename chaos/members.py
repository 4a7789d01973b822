"""Groups of other projects' consumers in a chaos run: any program that logs its deliveries can be judged.

A member is a command. Its last four arguments are the brokers' addresses, the topic, the group and a file. It appends a
line of JSON (key, sequence, partition, offset, as `anabranch audit --deliveries` reads them) for each delivered record,
before it commits it. All members of a group append to one file, so its lines are in the order of deliveries. A member
that ends is restarted, as an application would be; one that never writes a line has a faulty command.

The rules are those of the table in docs/guarantees.md: each acknowledged record is delivered; first deliveries of a
partition's records are in order, and so are those of a key as long as the topic has only grown. It only grows, unless
the run shrinks it, too. Records after a merge that are out of the order of their key are counted, and are no violation.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import shlex
import shutil
import signal
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from anabranch.chaos.checkers.order import b1_key_order
from anabranch.chaos.checkers.shared import at
from anabranch.chaos.clients import TOPIC
from anabranch.chaos.history import Delivery, History, Place, Send
from anabranch.cluster.zookeeper import die_with_parent

SIZE: Final = 2
AGAIN_S: Final = 0.5
FRUITLESS: Final = 10
"""Restarts without a single line from the group, after which the command is given up."""
END_S: Final = 20.0
COMPLAINT_CHARS: Final = 400
PROC: Final = Path("/proc")


class MemberFailed(RuntimeError):
    """A member cannot run, or its log is invalid; the message says what to do."""


class MemberGroup:
    """The members of one group, which run one command."""

    def __init__(self, name: str, command: str, servers: str, directory: Path) -> None:
        """Create a group; `name` is that of the group and of its files in `directory`."""
        self.name = name
        self.file = directory / f"{name}.jsonl"
        self.log = directory / f"{name}.log"
        self.killed = 0
        self.restarts = 0
        self.deliveries: list[Delivery] = []
        self._words = [*shlex.split(command), servers, TOPIC, name, str(self.file)]
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self._fruitless = 0
        self._read_bytes = 0
        self._handed: set[str] = set()
        self.unordered = 0
        """First deliveries out of the order of their key without a guarantee: after a merge."""

    def tasks(self) -> list[asyncio.Task[None]]:
        """Run the members; each task restarts one of them, and raises MemberFailed if that fails repeatedly."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.touch()
        return [asyncio.create_task(self._keep(number), name=f"{self.name}-{number}") for number in range(SIZE)]

    async def _keep(self, number: int) -> None:
        while not self._stopping.is_set():
            process = self._running[number] = await self._start()
            try:
                await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            if self._stopping.is_set():
                return
            self.restarts += 1
            self._fruitless = self._fruitless + 1 if self.file.stat().st_size == 0 else 0
            if self._fruitless >= FRUITLESS:
                raise MemberFailed(f"{shlex.join(self._words)} ends without deliveries each time: {self._complaint()}")
            await asyncio.sleep(AGAIN_S)

    async def _start(self) -> asyncio.subprocess.Process:
        if shutil.which(self._words[0]) is None:
            raise MemberFailed(f"{self._words[0]} cannot be run: no such program")
        with self.log.open("ab") as log_file:
            try:
                return await asyncio.create_subprocess_exec(
                    *die_with_parent(), *self._words, stdin=asyncio.subprocess.DEVNULL, stdout=log_file, stderr=log_file
                )
            except OSError as error:
                raise MemberFailed(f"{self._words[0]} cannot be run: {error}") from None

    def _complaint(self) -> str:
        return self.log.read_text(errors="replace")[-COMPLAINT_CHARS:].strip() or f"{self.log} is empty"

    def kill(self, rng: random.Random) -> str | None:
        """SIGKILL one of the members; None if none runs."""
        number = self._victim(rng)
        if number is None:
            return None
        self._running[number].kill()
        self.killed += 1
        return f"{self.name}-{number} (pid {self._running[number].pid})"

    async def freeze(self, rng: random.Random, pause_s: float) -> str | None:
        """SIGSTOP one of the members, and SIGCONT after a pause; None if none runs.

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

    def processes(self) -> Iterator[str]:
        """Yield the state of each member's process, and the end of what the members have printed."""
        for number, process in self._running.items():
            ended = process.returncode is not None
            state = f"ended with {process.returncode}" if ended else f"state {state_of(process.pid)}"
            yield f"process {self.name}-{number} (pid {process.pid}): {state}"
        yield f"printed last: {self._complaint()}"

    def _victim(self, rng: random.Random) -> int | None:
        alive = [number for number, one in self._running.items() if one.returncode is None]
        return rng.choice(alive) if alive and not self._stopping.is_set() else None

    async def stop(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        """End the members, by SIGTERM and after a while by SIGKILL."""
        self._stopping.set()
        for process in self._running.values():
            if process.returncode is None:
                process.terminate()
                process.send_signal(signal.SIGCONT)  # a frozen process would not handle SIGTERM
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await asyncio.gather(*(one.wait() for one in self._running.values()))
        for task in tasks:
            task.cancel()  # kills members that are still running
        await asyncio.gather(*tasks, return_exceptions=True)
        self.look()

    def look(self) -> None:
        """Read the lines written since the last call."""
        with self.file.open("rb") as file:
            file.seek(self._read_bytes)
            lines = file.read().splitlines(keepends=True)
        for line in lines:
            if line.endswith(b"\n"):
                self._read_bytes += len(line)
                self._note(line)

    def _note(self, line: bytes) -> None:
        try:
            one: dict[str, Any] = json.loads(line)
            value = f"{one['key']}/{int(one['sequence'])}"
            place = (TOPIC, int(one["partition"]))
            offset = int(one["offset"])
        except (ValueError, KeyError, TypeError) as error:
            raise MemberFailed(
                f"{self.file}:{len(self.deliveries) + 1} is not a delivery ({error!r}): {line!r}"
            ) from None
        member = str(one.get("member", self.name))
        self._handed.add(value)
        self.deliveries.append(
            Delivery(
                len(self.deliveries), member, 0, place, offset, one["key"], value, generation=-1, group_generation=-1
            )
        )

    def missing(self, sends: Iterable[Send]) -> list[str]:
        """Return the acknowledged records that no member received."""
        self.look()
        return [one.value for one in sends if one.outcome == "ok" and one.value not in self._handed]

    def judge(self, sends: Sequence[Send], merged: Collection[str] = ()) -> Iterator[str]:
        """Return every violation. `merged` are the records stored after the topic's first shrink."""
        sends = list(sends)
        promised = [one for one in self.deliveries if one.value not in merged]
        of_keys = list(b1_key_order(History(sends=sends, deliveries=promised)))
        yield from (f"{self.name}: B1 key-order: {line}" for line in of_keys)
        self.unordered = sum(1 for _ in b1_key_order(History(sends=sends, deliveries=self.deliveries))) - len(of_keys)
        yield from (f"{self.name}: partition order: {line}" for line in out_of_place(self.deliveries))
        lost = self.missing(sends)
        if lost:
            yield f"{self.name}: {len(lost)} acknowledged records were not delivered, such as {lost[:3]}"

    def summary(self) -> str:
        """Summarize the group in one line."""
        again = len(self.deliveries) - len(self._handed)
        return (
            f"{self.name}: {len(self._handed)} records, {again} delivered again, {self.killed} members killed, "
            f"{max(0, self.restarts - self.killed)} ended by themselves"
            f"{f', {self.unordered} out of the order of their key behind a merge' if self.unordered else ''}"
        )


def state_of(pid: int) -> str:
    """Return the kernel's letter for a process, such as S for sleeping and T for stopped; empty if it has ended."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def out_of_place(deliveries: Iterable[Delivery]) -> Iterator[str]:
    """Yield first deliveries of a partition's records that are not in the order of their offsets."""
    furthest: dict[Place, int] = {}
    known: set[tuple[Place, int]] = set()
    for one in deliveries:
        if (one.place, one.offset) in known:
            continue
        known.add((one.place, one.offset))
        if one.offset < furthest.get(one.place, -1):
            yield f"{one.value} at {at(one.place, one.offset)} was first delivered after offset {furthest[one.place]}"
        furthest[one.place] = max(furthest.get(one.place, -1), one.offset)


def write_sent(sends: Iterable[Send], file: Path) -> None:
    """Write the acknowledged sends to a file, for `anabranch audit --deliveries FILE --sent`."""
    with file.open("w") as lines:
        for one in sends:
            if one.outcome == "ok" and one.place is not None:
                row = {"key": one.key, "sequence": one.sequence, "partition": one.place[1], "offset": one.offset}
                lines.write(json.dumps(row) + "\n")
