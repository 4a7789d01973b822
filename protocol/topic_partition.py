"""The name of one partition of one topic."""

from __future__ import annotations

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """One partition of one topic. Sorts by topic, then by partition; prints as Kafka's tools write it: `orders-3`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
