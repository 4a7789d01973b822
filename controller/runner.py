"""Runs one tenure: the only task that changes the controller's state and executes its decisions.

Events come from watches, brokers, timers and callers into one queue. Each goes to `machine.step`, and its effects are
executed in order; the outcome of a write is an event again and is handled before further effects or the queue. A tenure
ends when it is fenced (`candidacy`), when the session expires, or through a bug.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, assert_never

from anabranch.controller import effects, events, machine, partitions
from anabranch.controller.candidacy import Candidacy, ControllerTenure, NoLongerController
from anabranch.controller.channels import ControllerChannelManager
from anabranch.controller.effects import Effect
from anabranch.controller.fenced_writes import FencedWrites
from anabranch.controller.settings import ControllerSettings
from anabranch.controller.state import ClusterState
from anabranch.controller.zk.session import ZkSession
from anabranch.controller.znode_reader import Read, ZnodeReader
from anabranch.controller.znode_writer import ZnodeWriter
from anabranch.protocol.values import value

log = logging.getLogger(__name__)


@value
class ControllerEvent:
    """A line for a timeline: an action or observation of this controller, with the event loop's time."""

    kind: str
    at_s: float
    controller_id: int
    controller_epoch: int
    detail: Mapping[str, Any]

    def __str__(self) -> str:
        details = " ".join(f"{name}={value}" for name, value in self.detail.items())
        return (
            f"[{self.at_s:.3f}] controller {self.controller_id}@{self.controller_epoch}: {self.kind} {details}".rstrip()
        )


def is_large(event: events.Event) -> bool:
    """Return whether an outcome takes milliseconds to handle."""
    return isinstance(event, events.PartitionsWritten) and len(event.written) >= partitions.PARTITIONS_AT_ONCE


class Runner:
    """Runs one tenure, from its election to its end."""

    def __init__(
        self,
        session: ZkSession,
        settings: ControllerSettings,
        term: ControllerTenure,
        candidacy: Candidacy,
        rng: random.Random,
        listener: Callable[[ControllerEvent], None] | None = None,
        acted: Callable[[str], None] | None = None,
        *,
        in_turn: Callable[[], bool],
        in_touch: asyncio.Event,
    ) -> None:
        """Create a runner; `in_turn`: see `ZnodeWriter`.

        `in_touch` is set while the session is connected: otherwise nothing new is decided.
        """
        self.state = ClusterState(settings, term.epoch)
        self.loaded = False
        self._settings = settings
        self._term = term
        self._candidacy = candidacy
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[events.Event | Read] = asyncio.Queue()
        self._reads: set[Read] = set()
        self._reader = ZnodeReader(session, rng, self._read_again)
        self.writes = FencedWrites(session, term, acted)
        self._writer = ZnodeWriter(self.writes, self._reader, in_turn=in_turn)
        self._channels = ControllerChannelManager(settings, self._queue.put_nowait)
        self._in_touch = in_touch
        self._timers: dict[str | int, asyncio.TimerHandle] = {}
        self._callers: dict[int, asyncio.Future[Any]] = {}
        self._tokens = 0

    async def run(self) -> None:
        """Run the whole tenure. Raises NoLongerController, SessionExpired, or the bug that ended it."""
        try:
            if not await self._candidacy.holds_office(lambda _: self._read_again(Read("controller"))):
                raise NoLongerController("/controller was lost before the tenure began")
            deletions = await self._reader.deletions()  # first, so that each of these topics is read, too
            names = await self._reader.topic_names()
            taken_over = events.ControllerFailover(
                await self._reader.brokers(), await self._snapshots(names), deletions, await self._reader.features()
            )
            await self._decide(taken_over)
            self.loaded = True
            while True:
                event = await self._queue.get()
                await self._in_touch.wait()
                read = await self._perform(event) if isinstance(event, Read) else event
                if read is not None:
                    await self._decide(read)
        finally:
            await self._end()

    async def ask(self, make_event: Callable[[int], events.Event]) -> Any:
        """Queue a caller's request; return the response. Cancelled when the tenure ends."""
        self._tokens += 1
        token = self._tokens
        answer = self._callers[token] = self._loop.create_future()
        self._queue.put_nowait(make_event(token))
        try:
            return await answer
        finally:
            self._callers.pop(token, None)

    def adopt(self, settings: ControllerSettings) -> None:
        """Apply changed settings."""
        self._queue.put_nowait(events.SettingsChanged(settings))

    async def _decide(self, event: events.Event) -> None:
        outcomes: deque[events.Event] = deque([event])
        posted: deque[events.Event] = deque()
        while outcomes or posted:
            # A posted event uses the whole state, which must include all completed writes.
            for effect in machine.step(self.state, outcomes.popleft() if outcomes else posted.popleft()):
                outcome = await self._act(effect)
                if outcome is not None:
                    (posted if isinstance(effect, effects.Post) else outcomes).append(outcome)
            if outcomes and is_large(outcomes[0]):
                await asyncio.sleep(0)  # only this task changes the state
        self.state.check()

    async def _act(self, effect: Effect) -> events.Event | None:
        match effect:
            case effects.WritePartitions():
                return await self._writer.partitions(effect)
            case effects.WriteTopic():
                return await self._writer.topic(effect)
            case effects.RemoveTopic():
                return await self._writer.remove_topic(effect.name)
            case effects.RemoveDeletion():
                await self._writer.remove_deletion(effect.name)
            case effects.WriteFeatures():
                return await self._writer.features(effect)
            case effects.Connect():
                self._channels.open(effect.broker)
            case effects.Disconnect():
                self._channels.close(effect.broker_id)
            case effects.SendToBroker():
                self._channels.send(effect.broker_id, effect.broker_epoch, effect.request)
                self.writes.taken("send")
            case effects.SetTimer():
                self._set_timer(effect.timer, effect.delay_ms, events.TimerFired(effect.timer))
            case effects.SetReplyTimer():
                self._set_timer(effect.token, effect.delay_ms, events.ReplyDue(effect.token))
            case effects.SendReply():
                self._reply(effect.token, effect.response)
            case effects.Post():
                return effect.event
            case effects.PublishEvent():
                self._announce(effect)
            case _:
                assert_never(effect)
        return None

    def _reply(self, token: int, response: Any) -> None:
        timer = self._timers.pop(token, None)
        if timer is not None:
            timer.cancel()
        caller = self._callers.get(token)
        if caller is not None and not caller.done():
            caller.set_result(response)

    def _announce(self, effect: effects.PublishEvent) -> None:
        settings = self._settings
        event = ControllerEvent(effect.kind, self._loop.time(), settings.node_id, self._term.epoch, effect.detail)
        log.info("%s", event)
        if self._listener is not None:
            self._listener(event)

    def _set_timer(self, key: str | int, delay_ms: int, event: events.Event) -> None:
        known = self._timers.pop(key, None)
        if known is not None:
            known.cancel()
        self._timers[key] = self._loop.call_later(delay_ms / 1000, self._fire, key, event)

    def _fire(self, key: str | int, event: events.Event) -> None:
        self._timers.pop(key, None)
        self._queue.put_nowait(event)

    def _read_again(self, read: Read) -> None:
        if read not in self._reads:
            self._reads.add(read)
            self._queue.put_nowait(read)

    async def _perform(self, read: Read) -> events.Event | None:
        self._reads.discard(read)
        match read.what:
            case "brokers":
                return events.BrokersRead(await self._reader.brokers())
            case "topics":
                return await self._read_topics()
            case "topic":
                topic = await self._reader.topic(read.name) if read.name in self.state.topics else None
                return None if topic is None else events.TopicRead(topic)
            case "deletions":
                deletions = await self._reader.deletions()
                if not deletions <= self.state.topics.keys():  # created and deleted since the topics were read
                    await self._decide(await self._read_topics())
                return events.DeletionsRead(deletions)
            case "controller":
                if not await self._candidacy.holds_office(lambda _: self._read_again(Read("controller"))):
                    raise NoLongerController("/controller belongs to another node")
                return None
        assert_never(read.what)

    async def _read_topics(self) -> events.TopicsRead:
        names = frozenset(await self._reader.topic_names())
        return events.TopicsRead(names, await self._snapshots(sorted(names - self.state.topics.keys())))

    async def _snapshots(self, names: Iterable[str]) -> tuple[events.TopicSnapshot, ...]:
        """Read these topics, unless a state shows that this tenure is over; a watch will report that."""
        snapshots = await self._reader.snapshots(names)
        for snapshot in snapshots:
            for partition in snapshot.partitions.values():
                if partition.state.controller_epoch > self._term.epoch:
                    raise NoLongerController(f"a controller of epoch {partition.state.controller_epoch} is active")
        return snapshots

    async def _end(self) -> None:
        self.loaded = False
        for timer in self._timers.values():
            timer.cancel()
        for caller in self._callers.values():
            caller.cancel()
        with contextlib.suppress(Exception):
            await self._channels.close_all()
