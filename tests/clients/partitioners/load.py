"""Keyed records of another producer during a resize, and the stored result."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator

from anabranch import Admin, Consumer, NewTopic, TopicPartition
from anabranch.clients.metadata import Topic
from anabranch.protocol.hashing import murmur2
from anabranch.protocol.linear_hashing import address

KEYS = [b"key-%d" % number for number in range(24)]
COUNTS = (4, 6, 3)
names = (f"placed-{number}" for number in itertools.count())


async def create(servers: str, policy: str = "verify") -> str:
    """A topic of four partitions."""
    name = next(names)
    async with Admin(servers) as admin:
        await admin.create_topics(
            [NewTopic(name=name, partitions=COUNTS[0], configs={"reshard.legacy.producers": policy})]
        )
        await admin.wait_for_topic(name)
    return name


async def resize(servers: str, topic: str, count: int) -> None:
    """Return when it is published."""
    async with Admin(servers) as admin:
        await admin.create_partitions(topic, count, allow_shrink=True)


class Load:
    """The next record of each key in turn, and what has become of all: "" or why it was refused."""

    def __init__(self) -> None:
        self.outcomes: dict[bytes, str] = {}
        self._numbers = {key: itertools.count() for key in KEYS}
        self._turns = itertools.cycle(KEYS)

    def rows(self, count: int) -> Iterator[tuple[bytes, bytes]]:
        """(key, value) of so many."""
        for key in itertools.islice(self._turns, count):
            yield key, b"%s:%06d" % (key, next(self._numbers[key]))

    @property
    def stored(self) -> set[bytes]:
        """What was acknowledged."""
        return {value for value, outcome in self.outcomes.items() if not outcome}

    @property
    def refused(self) -> set[bytes]:
        """What was not."""
        return {value for value, outcome in self.outcomes.items() if outcome}


class OneByOne:
    """The records of each key, the next when the one before is stored: what a producer does that wants their order."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.waiting: dict[bytes, deque[bytes]] = {key: deque() for key in KEYS}
        self.under_way: set[bytes] = set()
        self.refusals = 0

    def add(self, count: int) -> None:
        """More to send."""
        for key, value in self.load.rows(count):
            self.waiting[key].append(value)

    def due(self) -> list[tuple[bytes, bytes]]:
        """(key, value) of what may be sent now."""
        rows = [(key, values[0]) for key, values in self.waiting.items() if values and key not in self.under_way]
        self.under_way.update(key for key, _ in rows)
        return rows

    def settled(self, key: bytes, refused: bool) -> None:
        """What was refused is the next again."""
        self.under_way.discard(key)
        self.refusals += refused
        assert self.refusals < 1000, "it does not learn"
        if not refused:
            self.waiting[key].popleft()

    @property
    def done(self) -> bool:
        """Whether everything is stored."""
        return not any(self.waiting.values())


async def judged(servers: str, topic: str, stored: Iterable[bytes]) -> dict[bytes, list[bytes]]:
    """The values of each key, as a group of ours reads them: just what was acknowledged, all where its key belongs."""
    wanted = set(stored)
    async with Admin(servers) as admin:
        described: Topic = await admin.describe_topic(topic)
    lineage = described.lineage
    assert lineage is not None
    by_key = defaultdict(list)
    async with Consumer(
        topic, bootstrap_servers=servers, group_id=f"{topic}-judge", auto_offset_reset="earliest"
    ) as reader:
        ends = await reader.end_offsets([TopicPartition(topic, index) for index in described.partitions])
        assert sum(ends.values()) == len(wanted)
        async with asyncio.timeout(60):
            for _ in wanted:
                record = await reader.getone()
                assert record.key is not None
                assert record.value is not None
                home = address(murmur2(record.key), lineage.base, lineage.count_at(record.generation))
                assert record.partition == home, f"{record.value!r} of generation {record.generation}"
                by_key[record.key].append(record.value)
    assert {value for values in by_key.values() for value in values} == wanted
    return by_key
