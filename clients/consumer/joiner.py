"""Runs the joins of a rebalance, and waits for the metadata that the leader used.

An eager member waits for its join. A cooperative one keeps reading: its join is a task, and `Ownership` decides what to
do with the result. R19: a member waits for metadata that is not older than the assignment's, and for every new
partition that no merge has removed, so that it reads no child without knowing the parent.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from anabranch.clients.consumer.classic_group_membership import Assigned, State
from anabranch.clients.consumer.classic_group_session import ClassicGroupSession
from anabranch.clients.consumer.consumer_partition_assignor import REJOIN_NOW, MemberAssignment
from anabranch.clients.consumer.ownership import Ownership
from anabranch.clients.metadata import ClusterMetadata
from anabranch.clients.network import Network
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)

SYNC_TIMEOUT_S: Final = 2.0
METADATA_TIMEOUT_MS: Final = 10_000
"""How long to wait for the leader's metadata before rejoining."""


class Joiner:
    """The joins of one member, one after the other."""

    def __init__(
        self,
        network: Network,
        ownership: Ownership,
        session: ClassicGroupSession,
        topics: Sequence[str],
        *,
        clock_ms: Callable[[], int],
        wakeup: asyncio.Event,
    ) -> None:
        self._network = network
        self._ownership = ownership
        self._session = session
        self._topics = topics
        self._clock_ms = clock_ms
        self._wakeup = wakeup
        self._joining: asyncio.Task[Assigned | None] | None = None
        """The background join of a cooperative member."""
        self._rejoin_timer: asyncio.TimerHandle | None = None

    async def join(self) -> None:
        """Join, and wait for an assignment. Raises KafkaError if the group refuses this member."""
        assigned = await self._session.join()
        assert assigned is not None, "a member without partitions cannot lose them"
        known = await self._learn(assigned)
        if known is not None:
            self._ownership.complete_join(known)

    def join_meanwhile(self) -> None:
        """Start a join in the background."""
        self._ownership.begin_join()
        name = f"join of {self._session.membership.group_id}"
        self._joining = asyncio.create_task(self._join_until_known(), name=name)
        self._joining.add_done_callback(self._on_done)

    def take_up(self, assigned: Assigned) -> None:
        """Give the assignment to the assignor, which may schedule a rejoin; then adopt it."""
        given = MemberAssignment(assigned.partitions, assigned.user_data)
        assignor = self._session.membership.assignor
        self._plan_rejoin(assignor.on_assignment(given, assigned.group_generation))
        self._ownership.take_up(assigned)

    def want_rebalance(self) -> None:
        """Rejoin with the next request for records, without another reason."""
        self._ownership.want_rebalance()
        self._wakeup.set()

    async def wait_joined(self, *, timeout_ms: float) -> None:
        """Wait until no join is in progress. Raises KafkaError REBALANCE_IN_PROGRESS after `timeout_ms`."""
        if self._joining is None:
            return
        await asyncio.wait([self._joining], timeout=timeout_ms / 1000)
        if self._ownership.joining:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "no commit is possible before the rebalance completes")

    async def close(self) -> None:
        """Stop joining. A join that is nearly complete is awaited: the member may commit then."""
        if self._rejoin_timer is not None:
            self._rejoin_timer.cancel()
        joining = self._joining
        if joining is None:
            return
        if self._session.membership.state is State.SYNCING:
            await asyncio.wait([joining], timeout=SYNC_TIMEOUT_S)
        joining.cancel()
        await asyncio.gather(joining, return_exceptions=True)

    async def _join_until_known(self) -> Assigned | None:
        """Return None if the member loses partitions that it kept: they have to be given up first."""
        membership = self._session.membership
        while not membership.keeps_lost:
            membership.expire()
            assigned = await self._session.join()
            known = None if assigned is None else await self._learn(assigned)
            if known is not None:
                return known
        return None

    def _on_done(self, joining: asyncio.Task[Assigned | None]) -> None:
        self._joining = None
        if joining.cancelled():
            self._ownership.complete_join(None)
        else:
            failure = joining.exception()
            self._ownership.complete_join(joining.result() if failure is None else None, failure)
        self._wakeup.set()

    async def _learn(self, assigned: Assigned) -> Assigned | None:
        """Wait for metadata that is not older than the leader's (R19); return None if the assignment is void before.

        The result lacks partitions that a merge removed before this member read them.
        """
        membership = self._session.membership

        def knows_partitions(metadata: ClusterMetadata) -> bool:
            if not membership.stable:
                return True
            for topic, generation in assigned.generations.items():
                shown = metadata.topics.get(topic)
                if topic in self._topics and (shown is None or shown.generation < generation):
                    return False
            return knows_new_partitions(metadata, assigned.partitions, self._ownership.reads)

        try:
            metadata = await self._network.wait_for(knows_partitions, timeout_ms=METADATA_TIMEOUT_MS)
        except TimeoutError:
            log.warning("topics of the assignment do not exist (deleted?), joining again")
            membership.expire()
            return None
        if not membership.stable:
            return None
        kept = without_removed(metadata, assigned.partitions, self._ownership.reads)
        return dataclasses.replace(assigned, partitions=kept)

    def _plan_rejoin(self, at_ms: int | None) -> None:
        if self._rejoin_timer is not None:
            self._rejoin_timer.cancel()
            self._rejoin_timer = None
        if at_ms is not None:
            wait_s = max(at_ms - self._clock_ms(), 0) / 1000 if at_ms != REJOIN_NOW else 0
            self._rejoin_timer = asyncio.get_running_loop().call_later(wait_s, self.want_rebalance)


def knows_new_partitions(
    metadata: ClusterMetadata, assigned: Iterable[TopicPartition], reads: Callable[[TopicPartition], bool]
) -> bool:
    """Whether metadata has, or has had, every assigned partition that the member does not read already.

    A leader of another implementation sends no generations; but the partitions that it assigned exist. A merge may have
    removed one since: a coordinator leaves it assigned until the member has revoked others, which it does only after it
    knows this.
    """
    return all(
        reads(partition) or metadata.partition(*partition) is not None or metadata.has_removed(*partition)
        for partition in assigned
    )


def without_removed(
    metadata: ClusterMetadata, assigned: Iterable[TopicPartition], reads: Callable[[TopicPartition], bool]
) -> tuple[TopicPartition, ...]:
    """Return the assigned partitions without removed ones that the member does not read: it has nothing to revoke.

    If the index is used again, metadata shows another topic shape, and the member asks for its assignment again.
    """
    return tuple(one for one in assigned if reads(one) or not metadata.has_removed(*one))
