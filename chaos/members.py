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
import json
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from anabranch.chaos.checkers.order import b1_key_order
from anabranch.chaos.checkers.shared import at
from anabranch.chaos.clients import TOPIC
from anabranch.chaos.history import Delivery, History, Place, Send
from anabranch.chaos.restarted_processes import RestartedProcesses

SIZE: Final = 2


class InvalidDelivery(RuntimeError):
    """A line that a member wrote is not a delivery; the message names it."""


class MemberGroup:
    """The members of one group, which run one command."""

    def __init__(self, name: str, command: str, servers: str, directory: Path) -> None:
        """Create a group; `name` is that of the group and of its files in `directory`."""
        self.name = name
        self.file = directory / f"{name}.jsonl"
        words = [*shlex.split(command), servers, TOPIC, name, str(self.file)]
        self.processes = RestartedProcesses(
            name, [words] * SIZE, directory / f"{name}.log", has_worked=lambda: self.file.stat().st_size > 0
        )
        self.deliveries: list[Delivery] = []
        self._read_bytes = 0
        self._handed: set[str] = set()
        self.unordered = 0
        """First deliveries out of the order of their key without a guarantee: after a merge."""

    def tasks(self) -> list[asyncio.Task[None]]:
        """Run the members; each task restarts one of them, and raises ProcessesFailed if that fails repeatedly."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.touch()
        return self.processes.tasks()

    async def stop(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        """End the members, and read what they have written."""
        await self.processes.stop(tasks)
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
            raise InvalidDelivery(
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
            f"{self.name}: {len(self._handed)} records, {again} delivered again, {self.processes.killed} members "
            f"killed, {self.processes.ended} ended by themselves"
            f"{f', {self.unordered} out of the order of their key behind a merge' if self.unordered else ''}"
        )


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
