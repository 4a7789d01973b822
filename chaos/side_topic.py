"""A topic beside the resized one in a chaos run, with clients of its own.

`OutputTopic` is one to which applications write what they have read, each record once: all of it is read at the end.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from anabranch import Admin, Consumer, NewTopic
from anabranch.chaos.clients import CLIENT_FAILURES
from anabranch.chaos.history import Place, Send
from anabranch.clients.group_admin import committed_offsets
from anabranch.clients.security import SecurityArguments
from anabranch.protocol.topic_partition import TopicPartition

PARTITIONS: Final = 4


class SideTopic(Protocol):
    """The topic, its clients, and the judgement of what they did."""

    awaited: str
    """What is done when the clients have caught up, for the reader of the run."""

    async def begin(self, admin: Admin) -> list[asyncio.Task[None]]:
        """Create the topic, and start all clients; a task that ends early has failed."""

    def end_of_faults(self) -> None:
        """Note that no more faults follow."""

    async def done(self, admin: Admin, ends: Mapping[Place, int]) -> bool:
        """Whether the clients have caught up. `ends`: the ends of what is acknowledged in the resized topic."""

    async def stop(self) -> None:
        """End all clients."""

    async def failures(self) -> list[str]:
        """Read what the clients have left behind; return what is wrong with the run itself."""

    def judge(self, sends: Sequence[Send]) -> Iterable[str]:
        """Return every violation. `sends` are those to the resized topic."""

    def summary(self) -> str:
        """Summarize the topic in one line."""


class OutputTopic:
    """What applications write, which is never resized."""

    def __init__(self, name: str, servers: str, *, access: SecurityArguments) -> None:
        self.name = name
        self.rows: list[tuple[str, str]] = []
        """The (key, value) of each committed record, in the order of its partition."""
        self._servers = servers
        self._access = access

    async def create(self, admin: Admin) -> None:
        """Create the topic."""
        await admin.create_topics([NewTopic(name=self.name, partitions=PARTITIONS, replication_factor=3)])
        await admin.wait_for_topic(self.name, replicas=3)

    async def read(self) -> list[str]:
        """Read all committed records; return why they cannot be read, if so."""
        consumer = Consumer(
            self.name,
            bootstrap_servers=self._servers,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            **self._access,
        )
        partitions = [TopicPartition(self.name, index) for index in range(PARTITIONS)]
        try:
            async with consumer:
                ends = await consumer.end_offsets(partitions)
                while not consumer.assignment().issuperset(partitions) or any(
                    consumer.position(one) < end for one, end in ends.items()
                ):
                    for records in (await consumer.getmany(timeout_ms=500)).values():
                        self.rows += [((one.key or b"").decode(), (one.value or b"").decode()) for one in records]
        except CLIENT_FAILURES as error:
            return [f"{self.name} cannot be read: {error}"]
        return []


def judge_outputs(topic: str, outputs: Iterable[tuple[str, str]], sends: Iterable[Send]) -> Iterator[str]:
    """Yield every violation of "each acknowledged record has one output, and those of a key are in order".

    `outputs` are (key, value of the input) in the order of their partition.
    """
    outputs = list(outputs)
    times = Counter(value for _, value in outputs)
    for one in sends:
        if one.outcome == "ok" and not times[one.value]:
            yield f"{topic}: {one.value} has no output"
    yield from (f"{topic}: {value} has {count} outputs" for value, count in times.items() if count > 1)
    last: dict[str, tuple[int, str]] = {}
    for key, value in outputs:
        number = int(value.rpartition("/")[2])
        before, name = last.get(key, (-1, ""))
        if number < before:
            yield f"{topic}: the output of {value} is behind that of {name}"
        last[key] = max((number, value), (before, name))


async def read_commits(admin: Admin, group: str) -> dict[Place, int]:
    """Return the offsets that a group has committed; none if they cannot be read now.

    A commit whose response was lost may be among them, and is then not repeated.
    """
    try:
        found = await committed_offsets(admin.network, group)
    except CLIENT_FAILURES:
        return {}
    return {(one.topic, one.partition): offset for one, offset in found.items()}


async def has_committed(admin: Admin, group: str, ends: Mapping[Place, int]) -> bool:
    """Whether a group has committed everything up to these ends."""
    committed = await read_commits(admin, group)
    return all(committed.get(place, 0) >= end for place, end in ends.items())
