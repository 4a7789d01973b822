"""Whom the controller has to answer once a write of partition states has its outcome.

A `WritePartitions` carries one of these, and the `PartitionsWritten` that tells its outcome brings it back; so the
machine need not remember who asked for what.
"""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.controller.model import TopicPartition
from anabranch.protocol.values import value


@value
class IsrChange:
    """What the leader that sent an AlterPartition is answered when its ISR changes are written."""

    token: int
    refusals: Mapping[TopicPartition, int]
    """Partition -> error code, for those that were not even tried."""
    asked: tuple[tuple[bytes, str, tuple[TopicPartition, ...]], ...]
    """(topic id, topic name, partitions) in the order of the request."""


@value
class Shutdown:
    """What a broker that wants to stop is answered when its leaderships have been moved."""

    token: int
    broker_id: int


@value
class Election:
    """What an admin is answered when the elections they asked for are written."""

    token: int
    results: Mapping[TopicPartition, tuple[int, str]]
    """Partition -> (error code, message), for those that needed or allowed no election."""
    asked: tuple[TopicPartition, ...]
    """The partitions in the order of the request."""


FollowUp = IsrChange | Shutdown | Election
