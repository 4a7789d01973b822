"""The responses that a controller sends once a write of partition states has its outcome.

A `WritePartitions` carries one of these, and its `PartitionsWritten` returns it, so the state machine need not remember
requests.
"""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.controller.model import TopicPartition
from anabranch.protocol.values import value


@value
class IsrChange:
    """The response to a leader's AlterPartition when its ISR changes are written."""

    token: int
    refusals: Mapping[TopicPartition, int]
    """Partition -> error code, for those that were refused before the write."""
    requested: tuple[tuple[bytes, str, tuple[TopicPartition, ...]], ...]
    """(topic id, topic name, partitions) in the order of the request."""


@value
class Shutdown:
    """The response to a broker that shuts down when its leaderships have been moved."""

    token: int
    broker_id: int


@value
class Election:
    """The response to an admin when the requested elections are written."""

    token: int
    results: Mapping[TopicPartition, tuple[int, str]]
    """Partition -> (error code, message), for those that needed or allowed no election."""
    requested: tuple[TopicPartition, ...]
    """The partitions in the order of the request."""


FollowUp = IsrChange | Shutdown | Election
