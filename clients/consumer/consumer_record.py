"""The record that a consumer delivers, and the decoding of a batch into records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Final, NamedTuple, cast

from anabranch.protocol.records.record import Columns
from anabranch.protocol.topic_partition import TopicPartition

NO_GENERATION: Final = -1


class ConsumerRecord(NamedTuple):
    """One delivered record."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970, set by the producer or, if the topic is configured so, by the broker."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    """(name, value) pairs."""
    generation: int
    """The topic's generation by which the record was partitioned, 0 before the first resize.

    -1 in a topic that is not ordered.
    """


_new: Final = cast("Callable[[type[ConsumerRecord], Iterable[object]], ConsumerRecord]", tuple.__new__)


def consumer_records(columns: Columns, partition: TopicPartition, generation: int) -> list[ConsumerRecord]:
    """Build one tuple for each record without a Python-level loop."""
    topic, index = partition
    rows = zip(repeat(topic), repeat(index), *columns, repeat(generation))
    return list(map(_new, repeat(ConsumerRecord), rows))
