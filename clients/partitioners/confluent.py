"""A partitioner for confluent-kafka: `from anabranch.clients.partitioners.confluent import LineagePartitioner`.

librdkafka chooses partitions in C from the count alone, so this class chooses the partition and passes it on. For
topics with `reshard.legacy.producers=verify`; `docs/resize.md` explains what a refusal means for the order of a key.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

from anabranch.clients.partitioners.placement import Placement, Placements, placement_of

DeliveryCallback = Callable[[Any, Any], None]
REFUSALS: Final = (
    KafkaError.POLICY_VIOLATION,
    KafkaError.INVALID_RECORD,
    KafkaError._INVALID_DIFFERENT_RECORD,
    KafkaError.INVALID_PRODUCER_EPOCH,
)
"""Errors of: the batch; the record in it with a misplaced key; the batch's other records; and the records in flight of
an idempotent librdkafka, which begins a new epoch after a refusal."""
PAUSE_S: Final = 0.02
"""Interval of checks whether metadata shows new partitions of a resize."""


class LineagePartitioner:
    """Chooses partitions for one producer, and reads a topic's lineage again when a broker has refused a record.

    Args:
        producer: The producer that sends what is placed here.
        admin: Asks for the lineage; the broker must let it DESCRIBE_CONFIGS the topic.
        timeout_s: How long reading a lineage may take.
        rng: Chooses partitions of records without a key.
    """

    def __init__(
        self, producer: Producer, admin: AdminClient, *, timeout_s: float = 10, rng: random.Random | None = None
    ) -> None:
        self._producer, self._admin, self._timeout_s = producer, admin, timeout_s
        self._placements = Placements(rng or random.Random())
        self._telling: int | None = None
        """The thread that runs an application's `on_delivery`."""

    def partition(self, topic: str, key: bytes | None) -> int:
        """Return the partition of a key; without a key, any partition that takes records.

        Waits for the cluster if the topic is new to this producer, and after a refusal. Raises KafkaException.
        """
        return self._placements.partition(topic, self._placement(topic), key)

    def refresh(self, topic: str) -> None:
        """Read a topic's lineage again before the next record. `produce` does so by itself."""
        if (known := self._placements.cached(topic)) is not None:
            self._placements.on_refusal(topic, known)

    def produce(
        self,
        topic: str,
        value: Any = None,
        key: bytes | None = None,
        *,
        on_delivery: DeliveryCallback | None = None,
        **more: Any,
    ) -> None:
        """Call `Producer.produce` with the key's partition. A refusal reaches `on_delivery` like any other error.

        Refused records are not stored, and later ones of the key may be: see `docs/resize.md`. Raises RuntimeError from
        within `on_delivery`: a request to the cluster there ends the process (an assertion in confluent-kafka). Collect
        records to send there, and send them after `poll` or `flush` has returned.
        """
        placement = self._placement(topic)

        def on_delivered(error: Any, message: Any) -> None:
            if error is not None and error.code() in REFUSALS:
                self._placements.on_refusal(topic, placement)
            if on_delivery is not None:
                self._telling = threading.get_ident()
                try:
                    on_delivery(error, message)
                finally:
                    self._telling = None

        place = self._placements.partition(topic, placement, key)
        self._producer.produce(topic, value, key, place, on_delivery=on_delivered, **more)

    def _placement(self, topic: str) -> Placement:
        if self._telling == threading.get_ident():
            raise RuntimeError("on_delivery must not produce records: keep them, and produce them after poll returns")
        known = self._placements.cached(topic)
        if known is None:
            known = self._read(topic)
            self._placements.read(topic, known)
        return known

    def _read(self, topic: str) -> Placement:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        rows = self._admin.describe_configs([resource], request_timeout=self._timeout_s)[resource].result()
        placement = placement_of({name: row.value for name, row in rows.items()}, self._visible_count(topic))
        for _ in range(int(self._timeout_s / PAUSE_S)):
            if self._visible_count(topic) >= placement.count:
                return placement
            threading.Event().wait(PAUSE_S)  # the broker's metadata is older than the configuration
        raise KafkaException(
            KafkaError(KafkaError._UNKNOWN_PARTITION, f"{topic}: metadata does not show the new partitions")
        )

    def _visible_count(self, topic: str) -> int:
        """Return how many partitions this producer may send to. The call also refreshes librdkafka's metadata."""
        found = self._producer.list_topics(topic, self._timeout_s).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        return len(found.partitions)
