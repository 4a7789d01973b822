"""The identity of a consumer, for the transactional producer that commits its offsets (KIP-447)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple


class ConsumerGroupMetadata(NamedTuple):
    """A member of a group at one moment, as `consumer.group_metadata()` returns it.

    A producer commits offsets in the member's name. The coordinator refuses that when the group has a newer generation,
    so a member that was replaced cannot commit. With the defaults only the group is named, and the coordinator checks
    nothing: that is what Kafka did before 2.5.
    """

    group_id: str
    generation_id: int = -1
    """The generation of the group in which the member was assigned what it reads; -1: do not check."""
    member_id: str = ""
    group_instance_id: str | None = None
    """The member's id if it is a static one (KIP-345)."""
    before_commit: Callable[[], Awaitable[None]] | None = None
    """Awaited before a commit in the member's name: it stores the audit of deliveries, because commits open gates."""
