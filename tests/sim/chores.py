"""Administration during a schedule: moved replicas, elections, deleted records, created and deleted topics.

One `Caretaker` does one chore after another, drawn from the seed with weights of their own. It asks again while a
request fails for want of a controller or a leader, and takes a refusal for an answer. Records are deleted only where
the group has committed them, so whatever else is missing in the end was lost.

The side topic is deleted and made again under its name; it is written to, and nobody reads it. In the history each of
its lives has a name of its own, except for the last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from anabranch import Admin, NewTopic, Producer
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.sim import administration
from tests.sim.clients import CLIENT_FAILURES, TOPIC, Application, note_outcome
from tests.sim.cluster import SimCluster
from tests.sim.copiers import copied_offsets
from tests.sim.coverage import Coverage
from tests.sim.ending import committed_offsets
from tests.sim.faults import entering
from tests.sim.history import Place, Send

SIDE: Final = "side"
PATIENCE_S: Final = 6.0
"""For a chore that may as well be dropped. Making and unmaking a topic is pursued until it is known to be done."""

Chore = Callable[["Caretaker"], Awaitable[bool]]
"""Returns whether it was done."""
CHORES: Final[dict[str, Chore]] = {}


chore: Final = entering(CHORES)


class Caretaker(Application):
    """Does chores until it is stopped."""

    def __init__(
        self, cluster: SimCluster, weights: dict[str, float], *, pause_s: float, with_copiers: bool = False
    ) -> None:
        super().__init__(cluster, "caretaker")
        self.with_copiers = with_copiers
        self.weights = weights
        self.pause_s = pause_s
        self.menu: Mapping[str, Chore] = CHORES
        self.coverage = Coverage(cluster)
        self.await_moment: Callable[[str], Awaitable[None]] | None = None
        self.side_life = 0
        self.side_exists = False
        self.history.unread.add(SIDE)

    async def run(self) -> None:
        kinds = list(self.weights)
        while kinds and not self.stopping:
            await asyncio.sleep(self.rng.expovariate(1 / self.pause_s))
            kind = self.rng.choices(kinds, list(self.weights.values()))[0]
            if self.await_moment is not None:
                await self.await_moment(kind)
            if self.stopping:
                return
            with self.coverage.during(kind) as span:
                span.happened = await self.menu[kind](self)
            self.cluster.fired[f"chore: {kind}"] += span.happened

    async def ask(self, what: str, work: Callable[[Admin], Awaitable[Any]], *, limit_s: float = PATIENCE_S) -> bool:
        """Ask until there is an answer; whether it was no refusal."""
        deadline = self.cluster.now() + limit_s
        self.tell(what)
        for attempt in range(1000):
            try:
                chance = self.chance(f"{self.cluster.now()}-{attempt}")
                async with Admin(self.cluster.bootstrap, request_timeout_ms=3000, rng=chance) as admin:
                    await work(admin)
                return True
            except KafkaError as error:
                self.tell(f"{what}: {error}")
                if not error.code.retriable:
                    return False
            except CLIENT_FAILURES as error:
                self.tell(f"{what}: {error}")
            if self.cluster.now() >= deadline:
                return False
            await asyncio.sleep(0.3)
        return False

    def some_partition(self, *topics: str) -> Place | None:
        """One that exists by ZooKeeper's word."""
        there = [place for place in self.cluster.assignments() if not topics or place[0] in topics]
        return self.rng.choice(there) if there else None


@chore("move replicas")
async def move_replicas(caretaker: Caretaker) -> bool:
    """To any brokers, two at least, in any order: the first is the preferred leader."""
    place = caretaker.some_partition()
    if place is None:
        return False
    brokers = [machine.node_id for machine in caretaker.cluster.brokers]
    target = caretaker.rng.sample(brokers, caretaker.rng.randint(2, len(brokers)))
    return await caretaker.ask(
        f"move {place} to {target}", lambda admin: administration.reassign(admin, place[0], {place[1]: target})
    )


@chore("cancel a move")
async def cancel_move(caretaker: Caretaker) -> bool:
    moving = [(name, index) for name, body in caretaker.cluster.topics() for index in body.reassigned]
    if not moving:
        return False
    name, index = caretaker.rng.choice(moving)
    return await caretaker.ask(
        f"cancel the move of {name}-{index}", lambda admin: administration.reassign(admin, name, {index: None})
    )


@chore("elect preferred leaders")
async def elect_preferred(caretaker: Caretaker) -> bool:
    place = caretaker.some_partition()
    if place is None:
        return False
    indexes = [index for name, index in caretaker.cluster.assignments() if name == place[0]]
    return await caretaker.ask(
        f"elect preferred leaders of {place[0]}", lambda admin: administration.elect(admin, place[0], indexes)
    )


@chore("delete records")
async def delete_records(caretaker: Caretaker) -> bool:
    """Up to where the group has committed, and not always that far."""
    committed = {place: end for place, end in committed_offsets(caretaker.cluster).items() if place[0] == TOPIC and end}
    if caretaker.with_copiers:
        copied = copied_offsets(caretaker.history)
        committed = {place: min(end, copied[place]) for place, end in committed.items() if place in copied}
    if not committed:
        return False
    (topic, index), end = caretaker.rng.choice(sorted(committed.items()))
    before = end if caretaker.rng.random() < 0.5 else caretaker.rng.randint(1, end)
    return await caretaker.ask(
        f"delete records of {topic}-{index} before {before}",
        lambda admin: administration.delete_records(admin, topic, index, before),
    )


@chore("make or unmake a topic")
async def make_or_unmake(caretaker: Caretaker) -> bool:
    return await (_unmake if caretaker.side_exists else _make)(caretaker)


async def _make(caretaker: Caretaker) -> bool:
    rng = caretaker.rng
    topic = NewTopic(
        name=SIDE,
        partitions=rng.choice((1, 2, 3)),
        replication_factor=rng.choice((2, 3)),
        configs={"enable.ordered.delivery": rng.choice(("true", "false"))},
    )

    async def once(admin: Admin) -> None:
        try:
            await admin.create_topics([topic])
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        await admin.wait_for_topic(SIDE, timeout_ms=2000)

    caretaker.side_exists = True
    return await caretaker.ask("make the side topic", once, limit_s=120)


async def _unmake(caretaker: Caretaker) -> bool:
    async def once(admin: Admin) -> None:
        try:
            await admin.delete_topics([SIDE])
        except KafkaError as error:  # also said by a broker that has not heard of the topic yet
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or SIDE in dict(caretaker.cluster.topics()):
                raise

    if not await caretaker.ask("unmake the side topic", once, limit_s=120):
        return False
    cluster, history = caretaker.cluster, caretaker.history
    await cluster.until(lambda: all(name != SIDE for name, _ in cluster.topics()), 60, "the side topic is gone")
    caretaker.side_exists = False
    caretaker.side_life += 1
    buried = f"{SIDE}~{caretaker.side_life}"
    history.gone.add(buried)
    for send in history.sends:
        if send.place is not None and send.place[0] == SIDE:
            send.place = (buried, send.place[1])
    return True


@chore("grow a topic")
async def grow(caretaker: Caretaker) -> bool:
    count = sum(name == SIDE for name, _ in caretaker.cluster.assignments())
    if not caretaker.side_exists or not 0 < count < 6:
        return False
    return await caretaker.ask("grow the side topic", lambda admin: admin.create_partitions(SIDE, count + 1))


@chore("write to the side")
async def write(caretaker: Caretaker) -> bool:
    """Write a few records with a temporary producer."""
    if not caretaker.side_exists:
        return False
    producer = Producer(
        caretaker.cluster.bootstrap,
        client_id=caretaker.identity,
        request_timeout_ms=1000,
        delivery_timeout_ms=3000,
        max_block_ms=3000,
        rng=caretaker.chance(f"producer-{caretaker.cluster.now()}"),
    )
    try:
        await producer.start()
    except CLIENT_FAILURES as error:
        caretaker.tell(f"cannot write: {error}")
        return False
    name = f"{caretaker.identity}@{caretaker.cluster.now():.3f}"
    try:
        sent = [await _send(caretaker, producer, name, number) for number in range(caretaker.rng.randint(1, 8))]
    finally:
        await producer.stop()
    return any(send is not None and send.outcome == "ok" for send in sent)


async def _send(caretaker: Caretaker, producer: Producer, name: str, number: int) -> Send | None:
    history = caretaker.history
    key = f"s{number % 3}"
    send = Send(history.tick(), name, key, number // 3, f"{name}/{number}")
    try:
        receipt = await producer.send(SIDE, send.value.encode(), key.encode(), timestamp_ms=caretaker.clock_ms())
    except CLIENT_FAILURES as error:
        caretaker.tell(f"send refused: {error}")
        return None
    history.sends.append(send)
    receipt.add_done_callback(lambda done: note_outcome(caretaker, send, done))
    return send
