"""Finds starting offsets for partitions without a position, or whose position is out of range.

The group's committed offset, otherwise the reset policy's (`offset_lookup`), with one exception:

    R20   a partition that a resize created is read from its start by a group that has been reading the topic
    R10   a position that comes from the reset policy is committed at once, because others may wait for just that;
          and only in the assignment that it was found for: later it would take back what others have committed

The results go to `ConsumerCore`, which ignores those that it no longer needs. What a node that does not answer was
asked for is looked up again later, and partitions of other leaders are read meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from anabranch.clients.consumer.classic_group_membership import NO_GENERATION
from anabranch.clients.consumer.committed_offsets import CommittedOffsets
from anabranch.clients.consumer.core import ConsumerCore
from anabranch.clients.consumer.offset_lookup import OffsetResets
from anabranch.clients.consumer.progress import UNKNOWN
from anabranch.clients.network import Network
from anabranch.protocol.errors import KafkaError
from anabranch.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)

ROUND_MS: Final = 1000
"""How long failed lookups are repeated before records of other partitions are delivered again."""


class StartingPositions:
    """The lookups of one consumer; `committed` is None without a group."""

    def __init__(
        self, network: Network, core: ConsumerCore, committed: CommittedOffsets | None, resets: OffsetResets
    ) -> None:
        self._network = network
        self._core = core
        self._committed = committed
        self._resets = resets

    async def find(self) -> bool:
        """Look up every unknown position; return False if a transactional commit is pending, or a node did not answer:
        then try again.

        Raises KafkaError OFFSET_OUT_OF_RANGE if there is no offset and the policy is "none".
        """
        try:
            return await self._find()
        except (ConnectionError, TimeoutError, KafkaError) as error:
            if not _is_temporary(error):
                raise
            log.warning("starting offsets are not known yet: %s", error)
            return False

    async def _find(self) -> bool:
        todo = [progress.partition for progress in self._core.assignment if progress.position == UNKNOWN]
        committed = await self._committed.fetch(todo) if self._committed is not None else {}
        self._core.begin_at_commits(committed)
        fresh = [one for one in todo if committed.get(one, UNKNOWN) == UNKNOWN]
        if self._committed is not None:
            fresh = [one for one in fresh if one in committed]  # otherwise a transactional commit is pending
        starts, complete = await self._by_policy(fresh, await self._read_until(fresh, committed))
        log.debug("committed offsets: %s; by auto_offset_reset: %s", committed, starts)
        self._core.begin_at(starts)
        self._core.starts_looked_up(todo)
        return complete and (self._committed is None or len(committed) == len(todo))

    async def reset(self) -> bool:
        """Reset positions that are out of range, once everything fetched before is delivered.

        Returns False if a leader did not answer: then try again.
        """
        lost = [progress.partition for progress in self._core.assignment if progress.must_reset]
        offsets, complete = await self._by_policy(lost, set())
        self._core.reset_at(offsets)
        return complete

    async def _by_policy(
        self, partitions: Sequence[TopicPartition], resumed: Collection[str]
    ) -> tuple[dict[TopicPartition, int], bool]:
        """Return the reset policy's offsets of the partitions whose leaders answer, and whether no leader failed to."""
        found, error = await self._resets.find_available(self._network, partitions, resumed, timeout_ms=ROUND_MS)
        if error is None:
            return found, True
        if not _is_temporary(error):
            raise error
        log.warning("no starting offset of %d partitions yet: %s", len(partitions) - len(found), error)
        return found, False

    async def _read_until(self, fresh: Sequence[TopicPartition], committed: Mapping[TopicPartition, int]) -> set[str]:
        """Return the topics of `fresh` that this group, or this consumer, has been reading (R20)."""
        known = {progress.partition.topic for progress in self._core.assignment if progress.position != UNKNOWN}
        known |= {partition.topic for partition, offset in committed.items() if offset != UNKNOWN}
        if self._committed is None:
            return known
        # A member that is assigned only children does not know the group's commits in the topic's other partitions.
        metadata = self._network.metadata
        others = [
            TopicPartition(name, index)
            for name in sorted({partition.topic for partition in fresh} - known)
            if name in metadata.topics and metadata.topics[name].generation != NO_GENERATION
            for index in metadata.topics[name].partitions
        ]
        of_others = await self._committed.fetch(others)
        read = {partition.topic for partition, offset in of_others.items() if offset != UNKNOWN}
        return known | read | {partition.topic for partition in others if partition not in of_others}


def _is_temporary(error: BaseException) -> bool:
    if isinstance(error, KafkaError):
        return error.code.retriable
    return isinstance(error, ConnectionError | TimeoutError)
