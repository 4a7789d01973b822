"""Writes down every record that is handed to the application, before anyone else can act on it (D12).

Events leave through an idempotent producer under the record's own key; `flush` returns when all of them are stored. The
consumer flushes before each commit, because a commit is what opens the gates of others: by the time a later record of a
key can be delivered elsewhere, the earlier delivery stands in the audit topic.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import Final, Self

from clients.config import NetworkConfig
from clients.consumer.delivery import ConsumerRecord
from clients.producer.producer import Producer
from clients.producer.queues import RecordMetadata
from protocol import audit

_fixed_of: Final = audit.FIXED.pack


class DeliveryAudit:
    """The audit of one member, for as long as it lives."""

    def __init__(self, producer: Producer, topic: str, *, group: str, rng: random.Random) -> None:
        self._producer = producer
        self._topic = topic
        self._group = group
        self._incarnation = rng.getrandbits(64)
        self._names: dict[tuple[str, str], bytes] = {}
        self._failure: BaseException | None = None

    @classmethod
    def to(cls, topic: str, config: NetworkConfig, group: str, rng: random.Random) -> Self:
        """In a topic of the cluster that the member reads from."""
        servers = [f"{host}:{port}" for host, port in config.bootstrap_servers]
        producer = Producer(bootstrap_servers=servers, client_id=f"{config.client_id}-audit", acks="all", rng=rng)
        return cls(producer, topic, group=group, rng=rng)

    async def start(self) -> None:
        """Connect."""
        await self._producer.start()

    async def stop(self) -> None:
        """Store what is left and disconnect."""
        await self._producer.stop()

    async def write(self, records: Iterable[ConsumerRecord], *, member: str, now_ms: int) -> None:
        """Queue one event per record; waits only while the producer's buffer is full."""
        for record in records:
            producer, sequence = audit.NO_PRODUCER, audit.NO_SEQUENCE
            for name, value in record.headers:
                if name == audit.HEADER and value is not None:
                    producer, sequence = audit.decode_header(value)
            names = self._names.get((member, record.topic))
            if names is None:
                names = self._names[member, record.topic] = audit.encode_names(self._group, member, record.topic)
            fixed = _fixed_of(
                audit.VERSION,
                record.generation,
                record.partition,
                record.offset,
                producer,
                sequence,
                audit.fingerprint(record.value),
                now_ms,
                self._incarnation,
            )
            stored = await self._producer.send(self._topic, value=fixed + names, key=record.key)
            stored.add_done_callback(self._note)

    async def flush(self) -> None:
        """Return when every event written so far is stored. An event that could not be is an error, now and for ever:
        an audit with a hole proves nothing."""
        await self._producer.flush()
        if self._failure is not None:
            raise RuntimeError(f"deliveries are missing in the audit {self._topic!r}") from self._failure

    def _note(self, stored: asyncio.Future[RecordMetadata]) -> None:
        if not stored.cancelled() and stored.exception() is not None:
            self._failure = self._failure or stored.exception()
