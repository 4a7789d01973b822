"""All that a broker does about shared partitions: those it leads, its members' sessions, and the state it keeps.

Built when a client first asks for a shared partition, or when this broker leads a partition of `__share_group_state`:
a broker that does neither pays nothing.
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
    """The parts, put together."""

    def __init__(
        self,
        config: DynamicConfig,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        *,
        settings: Callable[[str], ShareSettings],
        clock_ms: Callable[[], int],
        rng: random.Random,
    ) -> None:
        self.settings = settings
        """Of a group."""
        self.coordinator = ShareCoordinator(config, replicas, metadata, clock_ms=clock_ms)
        self.persister = SharePersister(config, metadata, rng=rng, now_s=asyncio.get_running_loop().time)
        self.ends = LogEnds(lambda: config.current, replicas, metadata)
        self.sessions = ShareSessions()
        self.partitions = SharedPartitions(
            replicas, self.persister, settings=settings, is_read=self.sessions.has, clock_ms=clock_ms
        )

    async def stop(self) -> None:
        """Share nothing any more."""
        await self.partitions.stop()
        await self.coordinator.stop()
        await self.persister.close()
        await self.ends.close()

    def end(self, session: ShareSession) -> None:
        """A session is over: others may have what its member held."""
        self.partitions.release(session.group, session.member)

    def connection_gone(self, connection: object) -> None:
        """A client's connection has ended, and its sessions with it."""
        for session in self.sessions.leave(connection):
            self.end(session)
