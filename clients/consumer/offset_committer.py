"""Commits a consumer's offsets: first its audit is stored, then the group's offsets (R10, invariant I5).

A commit opens the gates of others, so the audit of everything delivered is stored before it. A commit in a producer's
transaction waits for that, too (`ConsumerGroupMetadata.before_commit`). Commits are serialized: the older of two must
not arrive last.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Mapping
from typing import Any, Final

from anabranch.clients.consumer.classic_group_session import ClassicGroupSession
from anabranch.clients.consumer.core import ConsumerCore
from anabranch.clients.consumer.delivery_audit import DeliveryAudit
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)

MEMBERSHIP_LOST: Final = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}
)


class OffsetCommitter:
    """Commits for one consumer; without a group `session` is None, and offsets are only noted."""

    def __init__(self, core: ConsumerCore, session: ClassicGroupSession | None, audit: DeliveryAudit | None) -> None:
        self._core = core
        self._session = session
        self._audit = audit
        self._storing = asyncio.Lock()

    async def store(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets (the next ones to read). Raises KafkaError if the group has moved on or refuses.

        Offsets of a topic that was deleted and created again since are refused, and count for nothing.

        It has moved on, too, if partitions were revoked or reassigned before the commit is sent, or sent again: an
        interim owner may be further, and the commit would be sent as the member of a later generation.
        """
        if not offsets:
            return
        assignment, ownership = self._core.assignment, self._core.ownership
        topic_ids = ownership.topic_ids(offsets)
        begin_numbers, owned = self._core.beginnings(offsets), [assignment.get(partition) for partition in offsets]

        def check_topics() -> None:
            shown = ownership.metadata.topics
            for name in topic_ids.keys() & shown.keys():
                if shown[name].topic_id != topic_ids[name]:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} was deleted and created again")

        def check_owned() -> None:
            check_topics()
            if any(assignment.get(one) is not row for one, row in zip(offsets, owned, strict=True)):
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION, "the group has rebalanced since the request")

        async with self._storing:
            await self.flush_audit()
            if self._session is not None:
                await self._session.commit(offsets, check_owned, topic_ids)
            check_topics()
            self._core.on_committed(offsets, begin_numbers)

    async def store_quietly(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Commit, unless the group has moved on or does not answer: the next owner then starts at an earlier offset."""
        return await self._quietly(self.store(offsets))

    async def flush_audit(self) -> None:
        """Return when the audit of everything delivered is stored."""
        if self._audit is not None:
            await self._audit.flush()

    async def flush_audit_quietly(self) -> bool:
        """Store the audit; return False if it cannot be stored now."""
        return await self._quietly(self.flush_audit())

    async def make_room(self) -> None:
        """Wait while the audit has too many unsent events, before more is delivered."""
        if self._audit is not None:
            await self._audit.make_room()

    async def learn_commits(self, partitions: Collection[TopicPartition]) -> None:
        """Fetch the group's committed offsets of these partitions."""
        assert self._session is not None, "only members of groups commit"
        try:
            self._core.learned_commits(await self._session.committed.fetch(sorted(partitions)))
        except (ConnectionError, TimeoutError, KafkaError) as error:
            log.info("the group's committed offsets could not be read: %s", error)

    async def _quietly(self, commit: Coroutine[Any, Any, None]) -> bool:
        try:
            await commit
        except (ConnectionError, TimeoutError) as error:
            log.warning("not committed: %s", error)
            return False
        except KafkaError as error:
            if error.code not in MEMBERSHIP_LOST and not error.code.retriable:
                raise
            log.info("not committed: %s", error)
            return False
        return True
