"""Producers without generations in the resize scenario, and their topic.

The topic has one of the four policies, and is resized, up and down, as the seed says; perhaps a producer with
generations joins them at some time. Under `verify` the stock producer does what such a one has to: it places keys by
linear hashing, and sends the next record of a key when the one before is settled. Its records are judged like anybody's
then; of others, nothing that was acknowledged may be lost, whatever their order (`Send.ordered`).
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

from anabranch import NewTopic, Producer
from anabranch.protocol.errors import KafkaError
from anabranch.protocol.hashing import murmur2
from anabranch.protocol.linear_hashing import address
from tests.sim.clients import CLIENT_FAILURES, Application, Operator, Writer, note_outcome
from tests.sim.cluster import SimCluster
from tests.sim.history import Send

STOCK: Final = "stock"
POLICIES: Final = ("auto", "auto", "refuse", "allow", "verify", "verify")
LIKELIHOOD: Final = 0.4


class StockOperator(Operator):
    """Creates the topic with its policy, and resizes it."""

    def __init__(self, cluster: SimCluster, counts: list[int], policy: str, *, pause_s: float) -> None:
        super().__init__(cluster, counts, pause_s=pause_s, topic=STOCK, name="operator of stock")
        self.policy = policy

    async def _create(self) -> None:
        async with self._admin() as admin:
            configs = {"reshard.legacy.producers": self.policy}
            topic = NewTopic(name=self.topic, partitions=self.counts[0], replication_factor=3, configs=configs)
            await admin.create_topics([topic])
            await admin.wait_for_topic(self.topic, replicas=3)


class Joining(Writer):
    """A producer with generations that begins to write to the stock topic some time."""

    topic = STOCK

    async def run(self) -> None:
        await asyncio.sleep(self.rng.random() * 6)
        await super().run()


class StockWriter(Application):
    """Sends keyed records without generations, idempotently and with acks=all."""

    def __init__(self, cluster: SimCluster, name: str, policy: str, *, base: int, pause_s: float) -> None:
        super().__init__(cluster, name)
        self.policy = policy
        self.base = base
        self.pause_s = pause_s
        self.outstanding = 0
        self._sequences: dict[tuple[str, str], int] = {}
        self._busy: set[str] = set()

    async def run(self) -> None:
        while not self.stopping:
            producer = Producer(
                self.cluster.bootstrap,
                client_id=self.identity,
                partitioner="modulo",  # which sends no generation
                linger_ms=self.rng.choice((0, 5, 30)),
                request_timeout_ms=1500,
                delivery_timeout_ms=20000,
                max_block_ms=20000,
                metadata_max_age_ms=1000,
                rng=self.chance("producer"),
            )
            try:
                await producer.start()
                while not self.stopping:
                    for _ in range(self.rng.choice((1, 2, 4))):
                        await self._send(producer, f"s{self.rng.randrange(6)}")
                    await asyncio.sleep(self.pause_s * self.rng.random() * 2)
                await producer.stop()
            except CLIENT_FAILURES as error:
                self.tell(f"starts over: {error}")
                await asyncio.sleep(0.5)

    async def _send(self, producer: Producer, key: str) -> None:
        verified = self.policy == "verify"
        if verified and key in self._busy:
            return
        sequence = self._sequences.get((self.identity, key), 0)
        value = f"{self.identity}/{key}/{sequence}"
        send = Send(self.history.tick(), self.identity, key, sequence, value, ordered=verified)
        try:
            live = await producer.partitions_for(STOCK)
            where = address(murmur2(key.encode()), self.base, len(live)) if verified else None
            receipt = await producer.send(
                STOCK, value.encode(), key.encode(), partition=where, timestamp_ms=self.clock_ms()
            )
        except (KafkaError, ValueError) as error:
            self.tell(f"send refused: {error}")
            return
        self._sequences[self.identity, key] = sequence + 1
        self.history.sends.append(send)
        self.outstanding += 1
        self._busy.add(key)
        receipt.add_done_callback(lambda done: self._settled(send, done))

    def _settled(self, send: Send, receipt: asyncio.Future[object]) -> None:
        self.outstanding -= 1
        self._busy.discard(send.key)
        note_outcome(self, send, receipt)  # type: ignore[arg-type]


def counts_of(rng: random.Random) -> list[int]:
    """An initial count, and a few more."""
    counts = [rng.choice((1, 2, 2, 3, 4))]
    for _ in range(rng.choice((1, 2, 2, 3))):
        counts.append(rng.choice([one for one in (1, 2, 3, 5, 6) if one != counts[-1]]))
    return counts
