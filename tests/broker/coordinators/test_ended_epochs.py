"""With transactions of version 2, no record of an ended epoch is appended, whoever leads.

Method: one producer goes through transactions on two partitions of three brokers. At the same time batches of the
epochs that have ended, and second batches of the one that is being ended, are sent again; leaders and the coordinator
move. Then the logs are read: behind the marker of a transaction there is nothing of its epoch. A leader that does not
look at epochs is caught by the same story.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from anabranch.broker.storage.producer_state import ProducerStates
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.broker.coordinators.test_transaction_failover import with_leader, without_leader
from tests.broker.coordinators.test_transactions_of_version_2 import end_on, epochs_of, send
from tests.broker.coordinators.transaction_world import Identity, TransactionWorld, transaction_world

NONE = ErrorCode.NONE
TRANSACTIONS = 8
PARTITIONS = (0, 1)


def late(batches: Iterable[tuple[int, bool]]) -> Iterator[int]:
    """The epochs of the batches that came behind a marker that ended their epoch, or a later one.

    A marker of version 2 has the epoch after that of the records that it ends.
    """
    ended = -1
    for epoch, is_marker in batches:
        if is_marker:
            ended = max(ended, epoch - 1)
        elif epoch <= ended:
            yield epoch


def test_late_appends_are_detected() -> None:
    assert list(late([(0, False), (1, True), (1, False), (2, True)])) == []
    assert list(late([(0, False), (1, True), (0, False), (1, False), (2, True), (1, False)])) == [0, 1]


class Story:
    """One producer, what it has left behind, and who leads."""

    def __init__(self, world: TransactionWorld, rng: random.Random) -> None:
        self.world, self.rng = world, rng
        self.coordinator = 1
        self.ended: list[Identity] = []
        self.late_answers: set[ErrorCode] = set()

    async def run(self) -> None:
        me = await self.world.begin()
        for _ in range(TRANSACTIONS):
            for index in self.rng.sample(PARTITIONS, self.rng.randint(1, len(PARTITIONS))):
                await self.sent(me, index)
                await self.disturb(index)
            _, after = await asyncio.gather(self.again(me), self.end(me))
            self.ended.append(me)
            me = after
            await self.disturb(self.rng.choice(PARTITIONS))
            if self.rng.random() < 0.3:
                await self.move()

    def leader(self, index: int) -> int:
        return self.world.assigned["t", index].leader

    async def sent(self, who: Identity, index: int) -> None:
        async with asyncio.timeout(20):
            while await send(self.world, who, index, self.leader(index)) is not NONE:
                pass

    async def again(self, who: Identity) -> None:
        """A second batch, which may come before the end or after it."""
        index = self.rng.choice(PARTITIONS)
        await asyncio.sleep(self.rng.choice((0, 0.001, 0.005)))
        await send(self.world, who, index, self.leader(index), sequence=1)

    async def disturb(self, index: int) -> None:
        for old in self.rng.sample(self.ended, min(2, len(self.ended))):
            self.late_answers.add(await send(self.world, old, index, self.leader(index)))

    async def end(self, who: Identity) -> Identity:
        commit = self.rng.random() < 0.6
        async with asyncio.timeout(20):
            while True:
                code, after = await end_on(self.world, who, commit=commit, at=self.coordinator)
                if code is NONE:
                    return after

    async def move(self) -> None:
        index = self.rng.choice(PARTITIONS)
        await without_leader(self.world, index)
        await with_leader(self.world, index, self.rng.choice((1, 2, 3)))
        if self.rng.random() < 0.5:
            self.coordinator = self.rng.choice([one for one in (1, 2, 3) if one != self.coordinator])
            await self.world.coordinate(self.coordinator)

    def found(self) -> list[int]:
        return [epoch for index in PARTITIONS for epoch in late(epochs_of(self.world, index, self.leader(index)))]


@pytest.mark.parametrize("seed", range(3))
async def test_batches_of_an_ended_producer_epoch_are_not_appended(seed: int) -> None:
    async with transaction_world(brokers=3, partitions=len(PARTITIONS)) as world:
        story = Story(world, random.Random(seed))
        await story.run()
        assert story.late_answers and NONE not in story.late_answers
        assert story.found() == []


async def test_leader_without_epoch_check_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    check = ProducerStates.check

    def blind(self: ProducerStates, *arguments: Any, **named: Any) -> None:
        try:
            check(self, *arguments, **named)
        except KafkaError as error:
            if error.code is not ErrorCode.INVALID_PRODUCER_EPOCH:
                raise

    def open_at_all(self: ProducerStates, producer_id: int, _epoch: int) -> bool:
        entry = self._entries.get(producer_id)
        return entry is not None and entry.transaction_start >= 0

    monkeypatch.setattr(ProducerStates, "check", blind)
    monkeypatch.setattr(ProducerStates, "has_open", open_at_all)
    async with transaction_world(brokers=3, partitions=len(PARTITIONS)) as world:
        story = Story(world, random.Random(0))
        me = await world.begin()
        await story.sent(me, 0)
        story.ended.append(me)
        me = await story.end(me)
        await story.sent(me, 0)
        await story.disturb(0)
        assert story.found() == [me[1] - 1]
