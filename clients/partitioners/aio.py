"""A partitioner for aiokafka: `from anabranch.clients.partitioners.aio import LineagePartitioner`.

aiokafka calls its own partitioners without the topic, so this class chooses the partition and passes it to `send`. For
topics with `reshard.legacy.producers=verify`; `docs/resize.md` explains what a refusal means for the order of a key.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, PolicyViolationError, for_code

from anabranch.clients.partitioners.placement import Placement, Placements, placement_of

PAUSE_S: Final = 0.02
"""Interval of checks whether metadata shows new partitions of a resize."""


class LineagePartitioner:
    """Chooses partitions for one producer, and reads a topic's lineage again when a broker has refused a record.

    The producer must not be idempotent: aiokafka leaves a hole in its numbers where a batch was refused, and every
    later one to that partition fails.

    Args:
        producer: The producer that sends what is placed here.
        admin: Asks for the lineage; the broker must let it DESCRIBE_CONFIGS the topic.
        timeout_s: How long reading a lineage may take.
        rng: Chooses partitions of records without a key.
    """

    def __init__(
        self,
        producer: AIOKafkaProducer,
        admin: AIOKafkaAdminClient,
        *,
        timeout_s: float = 10,
        rng: random.Random | None = None,
    ) -> None:
        self._producer, self._admin, self._timeout_s = producer, admin, timeout_s
        self._placements = Placements(rng or random.Random())
        self._reading = asyncio.Lock()

    async def partition(self, topic: str, key: bytes | None) -> int:
        """Return the partition of a key; without a key, any partition that takes records.

        Waits for the cluster if the topic is new to this producer, and after a refusal. Raises aiokafka's KafkaError,
        TimeoutError.
        """
        return self._placements.partition(topic, await self._placement(topic), key)

    def refresh(self, topic: str) -> None:
        """Read a topic's lineage again before the next record. `send` does so by itself."""
        if (known := self._placements.cached(topic)) is not None:
            self._placements.on_refusal(topic, known)

    async def send(
        self, topic: str, value: bytes | None = None, key: bytes | None = None, **more: Any
    ) -> asyncio.Future[Any]:
        """Call `AIOKafkaProducer.send` with the key's partition. A refusal is the future's PolicyViolationError.

        Refused records are not stored, and later ones of the key may be: see `docs/resize.md`.
        """
        placement = await self._placement(topic)

        def on_sent(sent: asyncio.Future[Any]) -> None:
            if not sent.cancelled() and isinstance(sent.exception(), PolicyViolationError):
                self._placements.on_refusal(topic, placement)

        place = self._placements.partition(topic, placement, key)
        sent: asyncio.Future[Any] = await self._producer.send(topic, value, key=key, partition=place, **more)
        sent.add_done_callback(on_sent)
        return sent

    async def _placement(self, topic: str) -> Placement:
        known = self._placements.cached(topic)
        if known is not None:
            return known
        async with self._reading, asyncio.timeout(self._timeout_s):
            known = self._placements.cached(topic)
            if known is None:
                known = await self._read(topic)
                self._placements.read(topic, known)
            return known

    async def _read(self, topic: str) -> Placement:
        (answer,) = await self._admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        ((code, reason, _, _, rows),) = answer.resources
        if code:
            raise for_code(code)(reason)
        properties = {row[0]: row[1] for row in rows}
        placement = placement_of(properties, len(await self._visible_partitions(topic)))
        while True:
            if len(await self._visible_partitions(topic)) >= placement.count:
                return placement
            await asyncio.sleep(PAUSE_S)  # the broker's metadata is older than the configuration

    async def _visible_partitions(self, topic: str) -> set[int]:
        """Return the partitions that this producer may send to. The call also refreshes aiokafka's metadata."""
        await self._producer.client.add_topic(topic)
        await self._producer.client.force_metadata_update()
        shown = await self._producer.partitions_for(topic)
        if not shown:
            raise KafkaError(f"{topic} has no partitions")
        return set(shown)
