"""The offsets of all groups of this broker: committed, looked up, deleted, and forgotten when nobody needs them.

Every change stands in the journal, replicated, before it is answered or seen by others. Who may commit is decided by
the group's machine, what an offset's life is by `offsets`; this shell writes the records and applies the outcome.
Source: kafka.coordinator.group.GroupMetadataManager.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from broker.coordinators.events import Answer
from broker.coordinators.group_state import EMPTY
from broker.coordinators.journal import COMMIT_ERRORS, GROUP_ERRORS, Journal
from broker.coordinators.offsets import CommittedOffset, Offsets, TopicPartition, records_of
from protocol.errors import ErrorCode, KafkaError
from protocol.internal_topics import GroupMetadataKey, OffsetCommitKey, encode_key

if TYPE_CHECKING:
    from broker.coordinators.group_table import GroupTable
    from broker.coordinators.shards import Slot
    from protocol.apis.offset_commit import OffsetCommitRequest

log: Final = logging.getLogger(__name__)


class GroupOffsets:
    """Commits, deletions and expiry."""

    def __init__(
        self,
        table: GroupTable,
        journal: Journal,
        *,
        clock_ms: Callable[[], int],
        retention_ms: int,
        answer: Callable[[Answer], None],
        look_again: Callable[[Slot], None],
        close: Callable[[Slot, ErrorCode], None],
    ) -> None:
        """`look_again` is called when a group may have become vacant, `close` when it was deleted."""
        self._table = table
        self._journal = journal
        self._clock_ms = clock_ms
        self._retention_ms = retention_ms
        self._answer = answer
        self._look_again = look_again
        self._close = close

    def of(self, group_id: str) -> Offsets:
        """What a group has committed; nothing for a group that nobody has heard of. Raises KafkaError."""
        slot = self._table.find(group_id)
        return Offsets() if slot is None else slot.offsets

    async def commit(self, request: OffsetCommitRequest, values: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Store offsets in the name of a member, or of anybody while the group is Empty. Raises KafkaError."""
        generation = request.generation_id_or_member_epoch
        if generation < 0:
            slot = self._table.find_or_create(request.group_id)
        elif (found := self._table.find(request.group_id)) is not None:
            slot = found
        else:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"there is no group {request.group_id!r}")
        try:
            slot.group.authorize_commit(request.member_id, request.group_instance_id, generation, self._clock_ms())
            await self._commit(slot, values)
        finally:
            self._look_again(slot)

    async def _commit(self, slot: Slot, values: Mapping[TopicPartition, CommittedOffset]) -> None:
        if not values:
            return
        slot.offsets.begin(values)
        try:
            first_offset = await slot.write(self._journal, records_of(slot.group.group_id, values), COMMIT_ERRORS)
        finally:
            slot.offsets.end(values)
        for place, (partition, value) in enumerate(values.items(), first_offset):
            slot.offsets.commit(partition, dataclasses.replace(value, journal_offset=place))
        for answer in slot.positions.committed(values, slot.offsets.offset_of):
            self._answer(answer)

    async def delete(self, slot: Slot, partitions: Iterable[TopicPartition], *, group: bool = False) -> None:
        """Write tombstones, and one for the group itself if it goes too. Raises KafkaError."""
        group_id = slot.group.group_id
        doomed = list(partitions)
        keys = [encode_key(OffsetCommitKey(group=group_id, topic=topic, partition=index)) for topic, index in doomed]
        if group:
            keys.append(encode_key(GroupMetadataKey(group=group_id)))
        if not keys:
            return
        first_offset = await slot.write(self._journal, [(key, None) for key in keys], GROUP_ERRORS)
        for place, partition in enumerate(doomed, first_offset):
            slot.offsets.delete(partition, place)

    async def expire(self) -> None:
        """Delete what nobody needs any more, and groups that nothing is left of."""
        now_ms = self._clock_ms()
        for slot in list(self._table.slots.values()):
            group = slot.group
            idle = group.state is EMPTY and not group.members.pending
            since_ms = (group.state_since_ms if group.protocol_type else -1) if idle else None
            expired = slot.offsets.expired(now_ms, self._retention_ms, idle_since_ms=since_ms)
            leaves_nothing = idle and len(expired) == len(slot.offsets.committed) and not slot.offsets.staged
            if expired or (leaves_nothing and group.generation > 0):
                await self.forget(slot, expired, group=leaves_nothing)

    async def forget(self, slot: Slot, partitions: Iterable[TopicPartition], *, group: bool = False) -> None:
        """Delete offsets that nobody asked to delete; if that fails now, it comes up again."""
        try:
            await self.delete(slot, partitions, group=group)
        except KafkaError as error:
            log.warning("offsets of %s stay for now: %s", slot.group.group_id, error)
            return
        if group and slot.group.state is EMPTY and not slot.offsets and not slot.writes_in_flight:
            self._close(slot, ErrorCode.COORDINATOR_NOT_AVAILABLE)
