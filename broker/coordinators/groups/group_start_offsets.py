"""Commits the offsets at which a group starts to read partitions that its coordinator withholds.

Before a child is assigned, its start is committed for a group that existed before the child or has a commit on its
parent (R20). Otherwise a reset policy could skip records of the child. If records of a withheld partition are deleted,
its log start is committed for a group in which some members hold gates. Those gates wait until the group has passed the
deleted records, and no member reads the partition to commit it (R10).

Invariant: a start replaces no commit ahead of it. A child's start replaces no offset of an open transaction either: it
waits for the next assignment, and the child stays withheld. `gated_topic` computes the offsets.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from anabranch.broker.coordinators.gates.stock_members import any_holds_gates
from anabranch.broker.coordinators.offsets.committed_offsets import CommittedOffset
from anabranch.protocol.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anabranch.broker.coordinators.gates.gated_topic import GatedTopic
    from anabranch.broker.coordinators.groups.group_offsets import GroupOffsets
    from anabranch.broker.coordinators.groups.group_runtime import GroupRuntime
    from anabranch.broker.coordinators.groups.group_shards import GroupEntry

log: Final = logging.getLogger(__name__)


class GroupStartOffsets:
    """The commits that a coordinator makes on behalf of its groups."""

    def __init__(self, runtime: GroupRuntime, offsets: GroupOffsets) -> None:
        self._runtime = runtime
        self._offsets = offsets

    async def commit_child_starts(self, slot: GroupEntry, topic: GatedTopic) -> None:
        """Commit the starts of the topic's children that are new to the group, and note the topic's generation."""
        name, generation = topic.image.name, topic.image.generation
        known = slot.gates.noted.get(name, -1)
        if known >= generation:
            return
        children = topic.children(known)
        offsets = slot.offsets
        starts = topic.starts(children, lambda index: offsets.offset_of((name, index)), was_there=known >= 0)
        if starts is None or any(offsets.unstable((name, child)) for child in starts):
            return  # retried before the next assignment; until then the children are withheld
        if starts:
            try:
                await self._commit(slot, name, starts)
            except KafkaError as error:
                log.warning("%s: cannot commit start offsets of children of %s: %s", slot.group_id, name, error)
                return
            log.info("%s: committed start offsets of children of %s: %s", slot.group_id, name, starts)
        slot.gates.noted[name] = generation

    async def commit_log_starts(self, slot: GroupEntry, topic: GatedTopic) -> None:
        """Commit the log starts of withheld partitions if the records after the group's commit are deleted (R10)."""
        name = topic.image.name
        unread = [
            index
            for known, index in slot.withheld
            if known == name and slot.is_unread(topic.image.topic_id, known, index)
        ]
        starts = topic.deleted_ahead(unread, lambda index: slot.offsets.offset_of((name, index)))
        if not starts or not any_holds_gates(slot.group):
            return
        try:
            await self._commit(slot, name, starts)
        except KafkaError as error:
            log.warning("%s: cannot commit past deleted records of %s: %s", slot.group_id, name, error)
        else:
            log.info(
                "%s: committed past deleted records of unassigned partitions of %s: %s", slot.group_id, name, starts
            )

    async def _commit(self, slot: GroupEntry, name: str, starts: Mapping[int, int]) -> None:
        date_ms = self._runtime.date_ms()
        await self._offsets.begin(
            slot,
            {
                (name, index): CommittedOffset(offset=start, commit_timestamp_ms=date_ms)
                for index, start in starts.items()
            },
        )
