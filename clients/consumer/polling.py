"""An application asks for records: what has to be in order first, and how it waits when there are none.

Whoever asks has processed what it was given before. So each request first passes on what it leaves behind (boundaries,
memberships, commits that are due, announcements: in the order that `clients.consumer.consumer` tells), then looks, and
looks again whenever there is news, until there is something or the time is up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from clients.consumer.delivery import ConsumerRecord, Deliveries
from clients.consumer.fetcher import Fetcher
from clients.consumer.handover import HandOver
from clients.consumer.ownership import Ownership
from clients.consumer.session import GroupSession
from protocol.topic_partition import TopicPartition

ONE_TIMEOUT_MS: Final = 1000
"""For how long a request for one record waits before it begins anew."""

Taken = TypeVar("Taken")


class Polling:
    """The requests of one application, one after the other."""

    def __init__(
        self,
        deliveries: Deliveries,
        handover: HandOver,
        ownership: Ownership,
        fetcher: Fetcher,
        session: GroupSession | None,
        *,
        news: asyncio.Event,
        check_alive: Callable[[], None],
        auto_commit_s: float | None,
    ) -> None:
        self._deliveries = deliveries
        self._handover = handover
        self._ownership = ownership
        self._fetcher = fetcher
        self._session = session
        self._news = news
        self._check_alive = check_alive
        self._auto_commit_s = auto_commit_s
        self._loop = asyncio.get_running_loop()
        self._commit_due = self._loop.time() + (auto_commit_s or 0)
        self._run: Iterator[ConsumerRecord] = iter(())  # what `one` may hand out while it is undisturbed

    async def many(self, limit: int, timeout_ms: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Up to `limit` records; nothing when none may be handed out within `timeout_ms`."""
        return await self._when_there(lambda: self._deliveries.take(limit), timeout_ms) or {}

    async def one(self, limit: int) -> ConsumerRecord:
        """The next record, however long it takes. Up to `limit` follow one another as those of one `many` would."""
        record = next(self._run, None) if self._undisturbed() else None
        while record is None:
            await asyncio.sleep(0)  # others have their turn, were there always another record
            record = await self._when_there(lambda: self._begin_run(limit), ONE_TIMEOUT_MS)
        return record

    def _begin_run(self, limit: int) -> ConsumerRecord | None:
        self._run = self._deliveries.one_by_one(limit)
        return next(self._run, None)

    def _undisturbed(self) -> bool:
        """Whether nothing has happened since the last record that has to be dealt with before the next one."""
        if self._news.is_set():
            return False
        if self._session is not None:
            self._session.at_work(asking=False)
        return self._auto_commit_s is None or self._loop.time() < self._commit_due

    async def _when_there(self, take: Callable[[], Taken], timeout_ms: int) -> Taken | None:
        """What `take` gives, once it gives something: the application asks for records, and waits."""
        self._check_alive()
        if self._session is not None:
            self._session.at_work(asking=True)
        try:
            return await self._taken(take, self._loop.time() + timeout_ms / 1000)
        finally:
            if self._session is not None:
                self._session.at_work(asking=False)

    async def _taken(self, take: Callable[[], Taken], deadline: float) -> Taken | None:
        self._run = iter(())
        while True:
            self._news.clear()
            await self._before_delivery()
            taken = take()
            self._fetcher.poke()
            if taken:
                return taken
            try:
                async with asyncio.timeout_at(deadline):
                    await self._news.wait()
            except TimeoutError:
                return None

    async def _before_delivery(self) -> None:
        """What has to be in order before a record is handed out."""
        await self._handover.cross()
        await self._ownership.settle()
        self._check_alive()
        now = self._loop.time()
        if self._auto_commit_s is not None and now >= self._commit_due:
            self._commit_due = now + self._auto_commit_s
            await self._handover.commit_positions()
        await self._handover.announce()
