"""The share services of a broker: led share partitions, share sessions, and the share coordinator.

Created at the first request for a share partition, or when this broker leads a partition of `__share_group_state`;
other brokers have no cost.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.broker.coordinators.share_partitions.log_ends import LogEnds
from anabranch.broker.coordinators.share_partitions.share_coordinator import ShareCoordinator
from anabranch.broker.coordinators.share_partitions.share_persister import SharePersister
from anabranch.broker.coordinators.share_partitions.share_sessions import ShareSession, ShareSessions
from anabranch.broker.coordinators.share_partitions.share_settings import ShareSettings
from anabranch.broker.coordinators.share_partitions.shared_partitions import SharedPartitions

if TYPE_CHECKING:
    from anabranch.broker.config.dynamic_config import DynamicConfig
    from anabranch.broker.metadata.metadata_cache import MetadataCache
    from anabranch.broker.replication.replica_manager import ReplicaManager


class ShareServices:
    """The share services of one broker."""

    def __init__(
        self,
        config: DynamicConfig,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        *,
        settings: Callable[[str], ShareSettings],
        clock_ms: Callable[[], int],
        date_ms: Callable[[], int],
        rng: random.Random,
    ) -> None:
        self.settings = settings
        self.coordinator = ShareCoordinator(config, replicas, metadata, clock_ms=date_ms)
        self.persister = SharePersister(config, metadata, rng=rng, now_s=asyncio.get_running_loop().time)
        self.ends = LogEnds(lambda: config.current, replicas, metadata)
        self.sessions = ShareSessions()
        self.partitions = SharedPartitions(
            replicas,
            self.persister,
            settings=settings,
            is_read=self.sessions.has,
            clock_ms=clock_ms,
            date_ms=date_ms,
        )

    async def stop(self) -> None:
        """Stop all share services."""
        await self.partitions.stop()
        await self.coordinator.stop()
        await self.persister.close()
        await self.ends.close()

    def end(self, session: ShareSession) -> None:
        """End a session, and release its offsets."""
        self.sessions.close(session)
        self.partitions.release(session.group, session.member)

    def connection_gone(self, connection: object) -> None:
        """End the sessions of a connection that was closed."""
        for session in self.sessions.leave(connection):
            self.end(session)
