"""A partition of a topic."""

from __future__ import annotations

from operator import index as as_index
from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A topic's name and a partition's index. Sorts by topic, then partition; prints as `orders-3`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def checked_partition(given: object) -> TopicPartition:
    """Return an application's partition, which may be a plain pair. Raises TypeError for anything else."""
    if not (isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str)):
        raise TypeError(f'a partition is a TopicPartition, as TopicPartition("orders", 0), not {given!r}')
    return TopicPartition(given[0], as_index(given[1]))
