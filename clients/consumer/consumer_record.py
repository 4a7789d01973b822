"""A record as the application gets it, and how the records of a batch become some."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Final, NamedTuple, cast

from anabranch.protocol.records.record import Columns
from anabranch.protocol.topic_partition import TopicPartition

NO_GENERATION: Final = -1


class ConsumerRecord(NamedTuple):
    """A record as the application gets it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """In milliseconds since 1970; set by the producer or, if the topic says so, by the broker."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    """(name, value) pairs."""
    generation: int
    """Which resize of the topic the record was partitioned by, 0 before the first.

    -1 in a topic that is not ordered.
    """


_new: Final = cast("Callable[[type[ConsumerRecord], Iterable[object]], ConsumerRecord]", tuple.__new__)


def consumer_records(columns: Columns, partition: TopicPartition, generation: int) -> list[ConsumerRecord]:
    """One tuple for each record, and no step of Python's."""
    topic, index = partition
    rows = zip(repeat(topic), repeat(index), *columns, repeat(generation))
    return list(map(_new, repeat(ConsumerRecord), rows))
