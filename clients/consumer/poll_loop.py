"""Serves the application's requests for records: takes all due steps, then delivers records.

By asking for more, the application confirms that it has processed the records before. So each request first takes the
steps that `core.ConsumerCore` returns, one after the other, and asks the core again after each, because each takes
time. When the core returns `DeliverRecords`, the records go to the application without an await in between. While there
are none, the request waits for news and asks the core again, until records arrive or the time is up.

A call that is cancelled, or in which a callback raises, leaves its step undone: the next call takes it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

from anabranch.clients.clock import elapsed_clock
from anabranch.clients.consumer.classic_group_session import ClassicGroupSession
from anabranch.clients.consumer.consumer_record import ConsumerRecord
from anabranch.clients.consumer.core import ConsumerCore
from anabranch.clients.consumer.fetcher import Fetcher
from anabranch.clients.consumer.gate_watcher import GateWatcher
from anabranch.clients.consumer.joiner import Joiner
from anabranch.clients.consumer.listener import PartitionKeyRebalanceListener, call_listener
from anabranch.clients.consumer.offset_committer import OffsetCommitter
from anabranch.clients.consumer.starting_positions import StartingPositions
from anabranch.clients.consumer.steps import (
    AdoptAssignment,
    AskMembership,
    Commit,
    DeliverRecords,
    FindResetPositions,
    FindStartingPositions,
    Flush,
    Join,
    JoinInBackground,
    LearnCommits,
    MakeRoom,
    NotifyAssigned,
    NotifyGone,
    NotifyKeysAssigned,
    NotifyLost,
    NotifyRevoked,
    Step,
    StoreAudit,
    Wait,
)
from anabranch.clients.network import Network
from anabranch.clients.timer import Timer
from anabranch.protocol.topic_partition import TopicPartition

ONE_TIMEOUT_MS: Final = 1000
"""How long a request for one record waits before it starts again."""
REFRESH_S: Final = 0.2
"""How long to wait before metadata is requested again for missing topics."""

Taken = TypeVar("Taken")


class PollLoop:
    """The requests of one application, in sequence; `session` and `joiner` are None without a group."""

    def __init__(
        self,
        network: Network,
        core: ConsumerCore,
        session: ClassicGroupSession | None,
        joiner: Joiner | None,
        starting: StartingPositions,
        committer: OffsetCommitter,
        gatekeeper: GateWatcher,
        fetcher: Fetcher,
        listener: PartitionKeyRebalanceListener,
        *,
        wakeup: asyncio.Event,
    ) -> None:
        self._core = core
        self._session = session
        self._joiner = joiner
        self._starting = starting
        self._committer = committer
        self._gatekeeper = gatekeeper
        self._fetcher = fetcher
        self._listener = listener
        self._wakeup = wakeup
        self._loop = asyncio.get_running_loop()
        self._clock_s = elapsed_clock()
        self._refresh_timer = Timer(network.request_refresh)
        self._run: Iterator[ConsumerRecord] = iter(())
        """The records that `one` may deliver while nothing else is due."""
        self._closed = False
        core.begin(self._clock_s())

    def close(self) -> None:
        """Deliver nothing more. A request that waits for records ends with an error."""
        self._closed = True
        self._wakeup.set()
        self._refresh_timer.cancel()

    def check_alive(self) -> None:
        """Raise RuntimeError if the consumer was stopped, or the error that ended it."""
        if self._closed:
            raise RuntimeError("the consumer is not started, or was stopped")
        for part in (self._session, self._gatekeeper):
            if part is not None and part.failure is not None:
                raise part.failure

    async def many(self, limit: int, timeout_ms: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return up to `limit` records; nothing if none are deliverable within `timeout_ms`."""
        take = self._core.deliveries.take
        return await self._when_there(lambda: take(limit, self._loop.time()), timeout_ms) or {}

    async def one(self, limit: int) -> ConsumerRecord:
        """Return the next record, however long it takes. Up to `limit` follow one another as in one `many`."""
        record = next(self._run, None) if self._has_no_event() else None
        while record is None:
            await asyncio.sleep(0)  # let other tasks run, even if there is always another record
            record = await self._when_there(lambda: self._begin_run(limit), ONE_TIMEOUT_MS)
        return record

    async def settle(self) -> None:
        """Take all due steps, so that there is an assignment and a position in each of its partitions."""
        self._core.begin_round()
        await self._take_steps()

    async def commit(self, offsets: Mapping[TopicPartition, int] | None) -> None:
        """Commit for the application: everything delivered, or these offsets. Raises `KafkaError` if refused."""
        step = self._core.flush_before(self._core.assignment.positions() if offsets is None else offsets)
        self._gatekeeper.refresh()
        if step is not None:
            await self._carry_out(step)
        await self._committer.store(self._core.assignment.positions() if offsets is None else offsets)
        self._wakeup.set()

    async def give_up(self) -> None:
        """Revoke everything at a stop: flush, notify, commit."""
        session = self._session
        while True:
            replaced = session is not None and (session.unsure or session.failure is not None)
            step = self._core.ownership.give_up(replaced=replaced)
            if step is None:
                return
            await self._carry_out(step)

    def _begin_run(self, limit: int) -> ConsumerRecord | None:
        self._run = self._core.deliveries.take_one(limit, self._loop.time())
        return next(self._run, None)

    def _has_no_event(self) -> bool:
        """Whether no event since the last record must be handled before the next one."""
        if self._wakeup.is_set():
            return False
        if self._session is None:
            return True
        elapsed_s = self._clock_s()
        self._session.at_work(elapsed_s, polling=False)
        return self._core.is_undisturbed(elapsed_s)

    async def _when_there(self, take: Callable[[], Taken], timeout_ms: int) -> Taken | None:
        """Wait for records on the application's request; return None on a timeout."""
        self.check_alive()
        if self._core.ownership.reads_nothing():
            raise RuntimeError("the consumer has no topics: choose partitions by `assign`")
        self._at_work(polling=True)
        try:
            return await self._take(take, self._loop.time() + timeout_ms / 1000)
        finally:
            self._at_work(polling=False)

    def _at_work(self, *, polling: bool) -> None:
        if self._session is not None:
            self._session.at_work(self._clock_s(), polling=polling)

    async def _take(self, take: Callable[[], Taken], deadline: float) -> Taken | None:
        self._run = iter(())
        while True:
            self._wakeup.clear()
            self._core.begin_round()
            last = await self._take_steps()
            taken = take() if isinstance(last, DeliverRecords) else None  # no await since the decision
            self._fetcher.poke()
            self._gatekeeper.refresh()
            if taken:
                return taken
            if self._loop.time() >= deadline:
                await asyncio.sleep(0)  # let other tasks run, even if there is always news
                return None
            try:
                async with asyncio.timeout_at(deadline):
                    await self._wakeup.wait()
            except TimeoutError:
                return None

    async def _take_steps(self) -> DeliverRecords | Wait | AskMembership:
        """Take steps until records may be delivered, or nothing can be done before there is news."""
        if self._core.ownership.missing_topics():
            self._ask_again()
        while True:
            self.check_alive()
            step = self._core.next_step(self._loop.time(), self._clock_s())
            self._gatekeeper.refresh()
            if isinstance(step, AskMembership) and self._session is not None:
                self._session.ask_now()
            if isinstance(step, DeliverRecords | Wait | AskMembership):
                return step
            await self._carry_out(step)

    async def _carry_out(self, step: Step) -> None:
        """Take a step. Errors of the application's callbacks are raised, and the step is due again."""
        done = True
        match step:
            case Flush():
                await self._flush(step)
            case Commit():
                done = await self._committer.store_quietly(step.offsets)
            case StoreAudit():
                done = await self._committer.flush_audit_quietly()
            case LearnCommits():
                await self._committer.learn_commits(step.partitions)
            case NotifyRevoked():
                await call_listener(self._listener.on_partitions_revoked, step.partitions)
            case NotifyLost() | NotifyGone():
                await call_listener(self._listener.on_partitions_lost, step.partitions)
            case NotifyAssigned():
                await call_listener(self._listener.on_partitions_assigned, step.partitions)
            case NotifyKeysAssigned():
                await call_listener(self._listener.on_partition_key_assigned, step.partitions)
            case MakeRoom():
                await self._committer.make_room()
            case FindStartingPositions():
                if not await self._starting.find():
                    self._ask_again()
                self._fetcher.poke()
            case FindResetPositions():
                if not await self._starting.reset():
                    self._ask_again()
            case Join() | JoinInBackground() | AdoptAssignment():
                await self._join(step)
        if done:
            self._core.on_step_done(step)
        else:
            self._core.postpone(step)

    async def _flush(self, step: Flush) -> None:
        self._core.flushing(step)
        try:
            await call_listener(self._listener.on_partition_key_maybe_revoked, step.partitions)
        finally:
            self._core.flush_ended(step)

    async def _join(self, step: Join | JoinInBackground | AdoptAssignment) -> None:
        assert self._joiner is not None, "only members of groups join"
        match step:
            case Join():
                await self._joiner.join()
            case JoinInBackground():
                self._joiner.join_meanwhile()
            case AdoptAssignment():
                self._joiner.take_up(step.assigned)
                self._gatekeeper.watch()

    def _ask_again(self) -> None:
        self._refresh_timer.set_by(self._loop.time() + REFRESH_S)
