"""An application asks for records: what has to be in order first, and how it waits when there are none.

Whoever asks has processed what it was given before. So each request first passes on what it leaves behind (boundaries,
memberships, commits that are due, announcements: in the order that `clients.consumer.consumer` tells), then looks, and
looks again whenever there is news, until there is something or the time is up.

All of that takes time, in which the member may be replaced. So whether records may be handed out is decided after it
(`_entitled`), and nothing is awaited between that decision and the moment at which the application has them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from anabranch.clients.clock import elapsed_clock
from anabranch.clients.consumer.delivery import ConsumerRecord, Deliveries
from anabranch.clients.consumer.fetcher import Fetcher
from anabranch.clients.consumer.group_session import GroupSession
from anabranch.clients.consumer.handover import HandOver
from anabranch.clients.consumer.ownership import Ownership
from anabranch.protocol.topic_partition import TopicPartition

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
        self._clock_s = elapsed_clock()
        self._commit_due_s = self._clock_s() + (auto_commit_s or 0)
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
        if self._session is None:
            return True
        now_s = self._clock_s()
        self._session.at_work(now_s, asking=False)
        return self._session.entitled(now_s) and (self._auto_commit_s is None or now_s < self._commit_due_s)

    async def _when_there(self, take: Callable[[], Taken], timeout_ms: int) -> Taken | None:
        """What `take` gives, once it gives something: the application asks for records, and waits."""
        self._check_alive()
        self._at_work(asking=True)
        try:
            return await self._taken(take, self._loop.time() + timeout_ms / 1000)
        finally:
            self._at_work(asking=False)

    def _at_work(self, *, asking: bool) -> None:
        if self._session is not None:
            self._session.at_work(self._clock_s(), asking=asking)

    async def _taken(self, take: Callable[[], Taken], deadline: float) -> Taken | None:
        self._run = iter(())
        while True:
            self._news.clear()
            await self._before_delivery()
            taken = take() if self._entitled() else None
            self._fetcher.poke()
            if taken:
                return taken
            try:
                async with asyncio.timeout_at(deadline):
                    await self._news.wait()
            except TimeoutError:
                return None

    def _entitled(self) -> bool:
        """Whether what is taken now may be handed out now. Without a group there is nobody who could replace us."""
        self._check_alive()
        if self._session is None or self._session.entitled(self._clock_s()):
            return True
        if self._session.unsure:
            self._session.ask_now()
        return False

    async def _before_delivery(self) -> None:
        """What has to be in order before a record is handed out.

        Nothing of it is done by who may have been replaced: it would flush older state over newer. It asks first.
        """
        if self._session is not None and self._session.unsure:
            return
        await self._handover.cross()
        await self._ownership.settle()
        self._check_alive()
        now_s = self._clock_s()
        if self._auto_commit_s is not None and now_s >= self._commit_due_s:
            self._commit_due_s = now_s + self._auto_commit_s
            await self._handover.commit_positions()
        await self._handover.announce()
        await self._handover.make_room()
