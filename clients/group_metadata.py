"""The identity of a consumer, for the transactional producer that commits its offsets (KIP-447)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple


class ConsumerGroupMetadata(NamedTuple):
    """A member of a group at one moment, as `consumer.group_metadata()` returns it.

    A producer commits offsets for this member. The coordinator refuses that once the group has a newer generation, so a
    replaced member cannot commit. The defaults give only the group, and the coordinator checks nothing, as in Kafka
    before 2.5.
    """

    group_id: str
    generation_id: int = -1
    """The group's generation in which the member was assigned its partitions; -1: do not check."""
    member_id: str = ""
    group_instance_id: str | None = None
    """The member's id if it is a static one (KIP-345)."""
    before_commit: Callable[[], Awaitable[None]] | None = None
    """Awaited before a commit for the member: it stores the audit of deliveries, because commits open gates."""
    leader_epoch_of: Callable[[str, int], int] | None = None
    """Returns the leader epoch that the member knows of a partition; offsets are committed with it (KIP-320)."""
    topic_ids: Mapping[str, bytes] | None = None
    """The ids of the topics that the member reads: its offsets mean nothing in another topic of the same name."""
