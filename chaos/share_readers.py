"""A share group (KIP-932) in a chaos run: its members' behaviour, and its checkers.

Members accept most of their records, release and reject some, renew locks, forget acquired records, and crash. The
checkers use what members observe: no accepted record is delivered again (A42), none exceeds its delivery limit (A43),
and in the end each acknowledged record was accepted, rejected, or delivered up to the limit (A41). The topic is its
own, and is not resized: guarantees of a share group end when its partition is merged away.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from anabranch import Admin, NewTopic
from anabranch.chaos.checkers import shares
from anabranch.chaos.clients import Record, Writer, ended
from anabranch.chaos.history import History, Place, Send
from anabranch.chaos.share_events import Handed, Judged
from anabranch.chaos.share_member import FAILURES, ShareMember, begin_at_earliest
from anabranch.chaos.share_session import Acknowledgement, SharedRecord, Verdict
from anabranch.clients.security import SecurityArguments
from anabranch.clients.security_config import make_security

SHARED: Final = "shared"
GROUP: Final = "sharers"
PARTITIONS: Final = 3
LOCK_S: Final = 5.0
DELIVERY_LIMIT: Final = 10
PROPERTIES: Final = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": str(round(LOCK_S * 1000)),
    "group.share.delivery.count.limit": str(DELIVERY_LIMIT),
    "group.share.min.session.timeout.ms": "3000",
    "group.share.session.timeout.ms": "6000",
    "group.share.min.heartbeat.interval.ms": "1000",
    "group.share.heartbeat.interval.ms": "1000",
    "share.coordinator.state.topic.num.partitions": "3",
}
"""Broker properties, so that a lock or a session ends within a run."""
CONTENT: Final = 0.8
CHECKERS: Final = {name: check for name, check in shares.CHECKERS.items() if name[:3] in ("A41", "A42", "A43")}
"""The checkers that use what members observe."""


class Handling:
    """The actions of one incarnation of a member on its records, with their history."""

    def __init__(
        self,
        name: str,
        member: ShareMember,
        history: History,
        rng: random.Random,
        *,
        now_s: Callable[[], float],
        lock_s: float,
    ) -> None:
        self._name = name
        self._member = member
        self._history = history
        self._rng = rng
        self._now_s = now_s
        self._lock_s = lock_s

    async def turn(self, content: float) -> None:
        """Poll once and process the records: `content` is the part that is accepted. Raises errors.

        A member that accepts everything reads what has piled up, and does not pause.
        """
        hurries = content >= 1
        history, rng = self._history, self._rng
        request_order, requested_s = history.tick(), self._now_s()
        got = await self._member.poll(500 if hurries else rng.choice((1, 3, 10, 500)), 300)
        for one in got:
            node, count = one.session.node, one.delivery_count
            row = Handed(history.tick(), request_order, requested_s, self._name, node, one.place, one.offset, count)
            history.shares.handed.append(row)
        if not got:
            return
        if not hurries and rng.random() < 0.1:
            await self._member.acknowledge([Acknowledgement(one, Verdict.RENEW, lambda known: None) for one in got])
        if not hurries:
            await asyncio.sleep(rng.random() * rng.choice((0.05, 0.3, self._lock_s * 1.25)))
        await self._member.acknowledge(list(self._sayings(got, content)), later=rng.random() < 0.5)

    def _sayings(self, got: Sequence[SharedRecord], content: float) -> Iterator[Acknowledgement]:
        for one in got:
            if self._rng.random() < content:
                verdict = Verdict.ACCEPT
            elif self._rng.random() < 0.15:
                continue  # its lock will expire
            else:
                verdict = self._rng.choice((Verdict.RELEASE, Verdict.RELEASE, Verdict.RELEASE, Verdict.REJECT))
            kind: Any = verdict.name.lower()
            row = Judged(self._history.tick(), self._name, one.session.node, one.place, one.offset, kind)
            self._history.shares.judged.append(row)

            def settled(known: bool | None, row: Judged = row) -> None:
                row.outcome = "info" if known is None else "ok" if known else "fail"
                row.acked_order, row.acked_s = self._history.tick(), self._now_s()

            yield Acknowledgement(one, verdict, settled)


class ShareReader:
    """One member, over all its incarnations."""

    def __init__(
        self, name: str, servers: Sequence[str], history: History, rng: random.Random, *, access: SecurityArguments
    ) -> None:
        self.name = name
        self.life = 0
        self.stopping = False
        self.content = CONTENT
        self._servers = servers
        self._history = history
        self._rng = rng
        self._access = access
        self._reading: asyncio.Task[None] | None = None

    @property
    def identity(self) -> str:
        """The name of this incarnation of the member."""
        return f"{self.name}.{self.life}"

    async def run(self) -> None:
        """Read until stopped."""
        while not self.stopping:
            self.life += 1
            member = ShareMember(
                self._servers,
                GROUP,
                self.identity,
                SHARED,
                rng=self._rng,
                request_timeout_ms=5000,
                security=make_security(**self._access),
            )
            self._reading = asyncio.create_task(self._read(member), name=self.identity)
            try:
                await ended(self._reading)
            finally:
                await member.vanish()

    async def _read(self, member: ShareMember) -> None:
        handling = Handling(
            self.identity, member, self._history, self._rng, now_s=asyncio.get_running_loop().time, lock_s=LOCK_S
        )
        beating = asyncio.create_task(member.beat_forever())
        try:
            while not self.stopping:
                try:
                    await handling.turn(self.content)
                except FAILURES:
                    await asyncio.sleep(0.2)
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
        await member.close()

    def crash(self) -> bool:
        """Crash, and rejoin as a new member. Returns False if it had ended."""
        return self._reading is not None and self._reading.cancel()


class SharedTopic:
    """The topic, its writer and its group."""

    awaited = "every shared record is acknowledged"

    def __init__(
        self,
        servers: str,
        chance: Callable[[str], random.Random],
        *,
        members: int,
        rate: float,
        access: SecurityArguments,
    ) -> None:
        self.record = Record()
        self.history.shares.delivery_limit = DELIVERY_LIMIT
        self.history.shares.topics.add(SHARED)
        self.crashed = 0
        self._servers = servers.split(",")
        self._access = access
        self._writer = Writer(
            SHARED, servers, self.record, chance(SHARED), keys=5, rate=rate, access=access, topic=SHARED
        )
        self._sharers = [
            ShareReader(f"s{one}", self._servers, self.history, chance(f"s{one}"), access=access)
            for one in range(members)
        ]
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def history(self) -> History:
        """The sends, deliveries and acknowledgements."""
        return self.record.history

    async def begin(self, admin: Admin) -> list[asyncio.Task[None]]:
        """Create the topic, and start all tasks; a task that ends early has failed."""
        await admin.create_topics([NewTopic(name=SHARED, partitions=PARTITIONS, replication_factor=3)])
        await admin.wait_for_topic(SHARED, replicas=3)
        await begin_at_earliest(self._servers[0], GROUP, security=make_security(**self._access))
        self._tasks = [asyncio.create_task(self._writer.run(), name=self._writer.name)]
        self._tasks += [asyncio.create_task(one.run(), name=one.name) for one in self._sharers]
        return self._tasks

    def crash(self, rng: random.Random) -> str | None:
        """Crash a member."""
        one = rng.choice(self._sharers)
        if self._writer.stopping or not one.crash():
            return None
        self.crashed += 1
        return one.identity

    def end_of_faults(self) -> None:
        """Stop sending, and accept all further records."""
        self._writer.stopping = True
        for one in self._sharers:
            one.content = 1.0

    async def done(self, admin: Admin, ends: Mapping[Place, int]) -> bool:
        """Whether all records sent to this topic are processed."""
        return self.all_processed()

    def all_processed(self) -> bool:
        """Whether all sent records are processed, and members know it: an acknowledgement may yet be refused."""
        writing = self._tasks[0]
        if not writing.done():
            return False
        if writing.exception() is not None:  # the run reports it
            return True
        living = {one.identity for one in self._sharers}
        pending = any(one.acked_order < 0 and one.member in living for one in self.history.shares.judged)
        return not pending and not any(shares.a41_unshared(self.history))

    async def failures(self) -> list[str]:
        """Describe each task that has failed."""
        ended = [one for one in self._tasks if one.done() and not one.cancelled()]
        return [f"{one.get_name()} failed: {one.exception()!r}" for one in ended if one.exception() is not None]

    async def stop(self) -> None:
        """End all tasks."""
        for one in self._sharers:
            one.stopping = True
        _, late = await asyncio.wait(self._tasks, timeout=20) if self._tasks else (set(), set())
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    def judge(self, sends: Sequence[Send]) -> Iterator[str]:
        """Yield every violation in the sends to this topic, not in those to the resized one."""
        for name, check in CHECKERS.items():
            yield from (f"{name}: {line}" for line in check(self.history))

    def summary(self) -> str:
        """Summarize the group in one line."""
        handed, judged = self.history.shares.handed, self.history.shares.judged
        accepted = sum((one.verdict, one.outcome) == ("accept", "ok") for one in judged)
        again = sum(one.count > 1 for one in handed)
        return (
            f"{GROUP}: {accepted} of {len(self.history.sends)} records accepted, {again} of {len(handed)} handed out "
            f"again, {self.crashed} members crashed"
        )
