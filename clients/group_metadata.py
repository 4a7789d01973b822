"""What a transactional producer tells the group coordinator about the consumer whose offsets it commits (KIP-447)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple


class ConsumerGroupMetadata(NamedTuple):
    """A member of a group at one moment. An older generation is refused, so that a zombie cannot commit.

    With the defaults only the group is named, and nothing fences an old member: that is what Kafka did before 2.5.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    before_commit: Callable[[], Awaitable[None]] | None = None
    """What has to be done before a commit in the member's name: its audit is stored, because commits open gates."""
