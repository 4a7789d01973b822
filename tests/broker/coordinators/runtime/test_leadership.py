"""A coordinator serves the partitions that its broker leads, once they are loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from anabranch.broker.coordinators.runtime.coordinator_tasks import CoordinatorTasks
from anabranch.broker.coordinators.runtime.leadership import Leadership
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.hashing import partition_of_group

PARTITIONS = 4
NAME = next(f"g{number}" for number in range(99) if partition_of_group(f"g{number}", PARTITIONS) == 2)


@dataclass
class Shard:
    partition: int
    leader_epoch: int
    loading: bool = True
    entries: list[str] = field(default_factory=list)

    def apply(self, entry: Any) -> None:
        self.entries.append(entry)


class Journal:
    """A journal whose load ends on demand."""

    topic = "__consumer_offsets"

    def __init__(self) -> None:
        self.readable = asyncio.Event()
        self.refusal: KafkaError | None = None

    async def replay(self, partition: int, apply: Callable[[Any], None]) -> None:
        await self.readable.wait()
        if self.refusal is not None:
            raise self.refusal
        apply(f"entry of {partition}")


class World:
    def __init__(self) -> None:
        self.journal = Journal()
        self.loaded: list[Shard] = []
        self.closed: list[tuple[int, ErrorCode]] = []
        self.partition_count: int | None = PARTITIONS
        self.leadership: Leadership[Shard] = Leadership(
            self.journal,  # type: ignore[arg-type]
            CoordinatorTasks("a test"),
            partition_count=lambda: self.partition_count,
            open_shard=Shard,
            on_loaded=self.loaded.append,
            on_closed=lambda shard, error: self.closed.append((shard.partition, error)),
        )

    def lead(self, epoch: int = 1) -> None:
        self.leadership.on_leader(self.journal.topic, 2, epoch)

    async def read(self) -> None:
        self.journal.readable.set()
        for _ in range(5):
            await asyncio.sleep(0)

    def code(self) -> ErrorCode:
        try:
            self.leadership.shard_of(NAME)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE


async def test_partition_is_served_once_it_is_loaded() -> None:
    world = World()
    assert world.code() is ErrorCode.NOT_COORDINATOR
    world.lead()
    world.leadership.on_leader("another topic", 3, 1)
    assert world.code() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and world.leadership.loading
    await world.read()
    assert world.code() is ErrorCode.NONE and not world.leadership.loading
    (shard,) = world.loaded
    assert (shard.entries, list(world.leadership.shards)) == (["entry of 2"], [2])


async def test_nothing_is_served_before_the_partition_count_is_known() -> None:
    """With another one than the topic has, a name would get a second coordinator, or this one another shard."""
    world = World()
    world.partition_count = None
    assert world.code() is ErrorCode.NOT_COORDINATOR
    world.lead()
    await world.read()
    assert world.code() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.partition_count = PARTITIONS
    assert world.code() is ErrorCode.NONE


async def test_new_epoch_of_the_same_leader_does_not_reload() -> None:
    world = World()
    world.lead()
    await world.read()
    world.lead(epoch=2)
    assert (world.code(), world.leadership.shards[2].leader_epoch, len(world.loaded)) == (ErrorCode.NONE, 2, 1)


async def test_resigned_partition_is_closed_during_its_load() -> None:
    world = World()
    world.lead()
    world.leadership.on_resign("another topic", 2)
    assert not world.closed
    world.leadership.on_resign(world.journal.topic, 2)
    world.leadership.on_resign(world.journal.topic, 2)
    assert world.closed == [(2, ErrorCode.NOT_COORDINATOR)]
    await world.read()
    assert not world.loaded and world.code() is ErrorCode.NOT_COORDINATOR


async def test_leadership_regained_during_a_load_starts_a_new_load() -> None:
    world = World()
    world.lead()
    world.leadership.on_resign(world.journal.topic, 2)
    world.lead(epoch=3)
    await world.read()
    assert [shard.leader_epoch for shard in world.loaded] == [3]


async def test_failed_load_leaves_no_shard() -> None:
    world = World()
    world.journal.refusal = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "gone")
    world.lead()
    await world.read()
    assert world.code() is ErrorCode.NOT_COORDINATOR and not world.loaded
    world.journal.refusal = None
    world.lead(epoch=2)
    await world.read()
    assert world.code() is ErrorCode.NONE


async def test_stopped_coordinator_refuses_requests_and_new_leadership() -> None:
    world = World()
    world.lead()
    await world.read()
    world.leadership.stop()
    assert world.closed == [(2, ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    world.lead(epoch=2)
    assert not world.leadership.shards
    with pytest.raises(KafkaError) as refused:
        world.leadership.shard_of(NAME)
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
