"""Writes every delivered record to the audit topic, before any other client can depend on it (D12).

Deliveries are noted when they happen, and sent soon after as runs of events (`event_runs`), through an idempotent
producer, under the key of their bucket; `flush` returns when all of them are stored. The consumer flushes before each
commit and each rebalance, and a producer before it adds the consumer's offsets to a transaction
(`ConsumerGroupMetadata`). A commit opens the gates of others: by the time a later record of a key can be delivered
elsewhere, the earlier delivery is in the audit topic.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Sequence
from typing import Final, Self

from anabranch.clients.config import NetworkConfig
from anabranch.clients.consumer.consumer_record import ConsumerRecord
from anabranch.clients.consumer.event_runs import EventRuns
from anabranch.clients.group_metadata import ConsumerGroupMetadata
from anabranch.clients.producer.producer import Producer
from anabranch.clients.producer.producer_record import RecordMetadata
from anabranch.clients.security import SecurityArguments
from anabranch.protocol.errors import KafkaError
from anabranch.protocol.host_port import format_host_port

log = logging.getLogger(__name__)

LINGER_S: Final = 0.1
"""How long a delivery waits for others: a run costs as much as some hundred of its events."""
EVENTS_MAX: Final = 16_000
"""Number of events that are sent at once, without waiting."""
BATCH_BYTES: Final = 256 * 1024


class DeliveryAudit:
    """The audit of one member."""

    def __init__(self, producer: Producer, topic: str, *, group: str, rng: random.Random) -> None:
        self._producer = producer
        self._topic = topic
        self._runs = EventRuns(group, incarnation=rng.getrandbits(64))
        self._unsent: deque[tuple[bytes, bytes]] = deque()
        self._sending = asyncio.Lock()
        self._due = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._follower: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None

    @classmethod
    def to(cls, topic: str, config: NetworkConfig, group: str, rng: random.Random) -> Self:
        """Create an audit in a topic of the member's own cluster."""
        servers = [format_host_port(*one) for one in config.bootstrap_servers]
        secured: SecurityArguments = {} if config.security is None else {"security": config.security}
        producer = Producer(
            bootstrap_servers=servers,
            client_id=f"{config.client_id}-audit",
            acks="all",
            linger_ms=0,
            batch_bytes=BATCH_BYTES,
            compression_type="lz4",
            rng=rng,
            **secured,
        )
        return cls(producer, topic, group=group, rng=rng)

    async def start(self) -> None:
        """Connect."""
        await self._producer.start()
        self._follower = asyncio.create_task(self._follow(), name="delivery audit")

    async def stop(self) -> None:
        """Store pending events and disconnect."""
        try:
            await self._send()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            if self._follower is not None:
                self._follower.cancel()
                await asyncio.wait([self._follower])
            await self._producer.stop()

    def note(
        self, records: Sequence[ConsumerRecord], *, owner: ConsumerGroupMetadata, now_ms: int, begin_number: int
    ) -> None:
        """Note delivered records of one partition.

        `begin_number` is that of the partition's progress.
        """
        self._runs.note(records, owner, now_ms, begin_number)
        if self._runs.waiting >= EVENTS_MAX:
            self._due.set()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LINGER_S, self._due.set)

    async def make_room(self) -> None:
        """Wait while too many events are unsent."""
        if self._runs.waiting >= EVENTS_MAX:
            await self._send()

    async def flush(self) -> None:
        """Return when every event so far is stored. Raises permanently once an event is lost."""
        await self._send()
        await self._producer.flush()
        if self._failure is not None:
            raise RuntimeError(f"some deliveries are missing in the audit topic {self._topic!r}") from self._failure

    async def _follow(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            try:
                await self._send()
            except (KafkaError, ConnectionError) as error:
                # Nothing is lost: the next write or flush retries, and raises the error.
                log.warning("cannot write to the audit topic %s yet: %s", self._topic, error)

    async def _send(self) -> None:
        """Give all noted events to the producer. A cancelled call leaves the rest for the next."""
        async with self._sending:
            self._unsent += self._runs.take()
            while self._unsent:
                key, value = self._unsent[0]
                stored = await self._producer.send(self._topic, value=value, key=key)
                self._unsent.popleft()
                stored.add_done_callback(self._note_outcome)

    def _note_outcome(self, stored: asyncio.Future[RecordMetadata]) -> None:
        if not stored.cancelled() and stored.exception() is not None:
            self._failure = self._failure or stored.exception()
