"""The registry of this broker's groups: every group of every loaded shard, by name.

A group is created by the first request that names it and may create it. It is forgotten when it is vacant
(`GroupEntry.vacant`), deleted, or when its partition's leadership ends.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Final

from anabranch.broker.coordinators.classic_groups.classic_group import ClassicGroup
from anabranch.broker.coordinators.classic_groups.group_state import GroupLimits
from anabranch.broker.coordinators.groups.group_shards import GroupEntry, Shard
from anabranch.broker.coordinators.runtime.coordinator_tasks import CoordinatorTasks
from anabranch.broker.coordinators.runtime.journal import Journal
from anabranch.broker.coordinators.runtime.leadership import Leadership
from anabranch.protocol.errors import ErrorCode, KafkaError

log: Final = logging.getLogger(__name__)


class GroupTable:
    """Find the entry of a group, and keep it in its shard."""

    def __init__(
        self,
        journal: Journal,
        background: CoordinatorTasks,
        *,
        limits: GroupLimits,
        rng: random.Random,
        clock_ms: Callable[[], int],
        partition_count: Callable[[], int | None],
        on_loaded: Callable[[GroupEntry], None],
        on_closed: Callable[[GroupEntry, ErrorCode], None],
    ) -> None:
        self.limits = limits
        self._rng = rng
        self._clock_ms = clock_ms
        self._on_loaded = on_loaded
        self._on_closed = on_closed
        self.slots: dict[str, GroupEntry] = {}
        self.leadership: Leadership[Shard] = Leadership(
            journal,
            background,
            partition_count=partition_count,
            open_shard=Shard,
            on_loaded=self._add_shard,
            on_closed=self._remove_shard,
        )

    def find(self, group_id: str) -> GroupEntry | None:
        """Return a group that is coordinated here, or None. Raises like `Leadership.shard_of`."""
        slot = self.slots.get(group_id)
        return self.leadership.shard_of(group_id).slots.get(group_id) if slot is None else slot

    def find_or_create(self, group_id: str) -> GroupEntry:
        """Return a group that is coordinated here; create it if necessary. Raises like `Leadership.shard_of`."""
        slot = self.find(group_id)
        if slot is None:
            shard = self.leadership.shard_of(group_id)
            slot = GroupEntry(ClassicGroup(group_id, self.limits, self._rng), shard.partition)
            self.slots[group_id] = shard.slots[group_id] = slot
        return slot

    def find_for_member(self, group_id: str, *, joins: bool) -> GroupEntry:
        """Return the group of a heartbeat; create it for a member that joins. Raises GROUP_ID_NOT_FOUND and others."""
        slot = self.find_or_create(group_id) if joins else self.find(group_id)
        if slot is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
        return slot

    def knows(self, slot: GroupEntry) -> bool:
        """Return whether this entry is its group's current entry."""
        return self.slots.get(slot.group.group_id) is slot

    def forget(self, slot: GroupEntry) -> None:
        """Remove a group that is deleted, vacant, or coordinated by another broker."""
        if self.knows(slot):
            del self.slots[slot.group.group_id]
            shard = self.leadership.shards.get(slot.partition)
            if shard is not None:
                shard.slots.pop(slot.group.group_id, None)

    def _add_shard(self, shard: Shard) -> None:
        shard.take_over(self.limits, self._rng, self._clock_ms())
        self.slots.update(shard.slots)
        for slot in shard.slots.values():
            log.info("loaded %s, %d offsets", slot.group.describe(), len(slot.offsets.committed))
            self._on_loaded(slot)

    def _remove_shard(self, shard: Shard, error: ErrorCode) -> None:
        for slot in list(shard.slots.values()):
            self.forget(slot)
            self._on_closed(slot, error)
