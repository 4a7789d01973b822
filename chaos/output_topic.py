"""The topic to which an application of a chaos run writes what it has read, each record once.

All of it is read at the end: each acknowledged record has one output, and the outputs of a key are in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from anabranch import Admin, Consumer, NewTopic
from anabranch.chaos.clients import CLIENT_FAILURES
from anabranch.chaos.history import Send
from anabranch.clients.security import SecurityArguments
from anabranch.protocol.topic_partition import TopicPartition

PARTITIONS: Final = 4


class OutputTopic:
    """The topic, which is never resized."""

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
