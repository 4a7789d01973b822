"""The typed bundle that every handler gets: all that one node can do.

A node without the role `broker` has no replicas and no groups; its dispatcher serves none of the APIs that would ask
for them, so the properties assert instead of returning None.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anabranch.broker.config_changes import ConfigChanges
from anabranch.broker.dynamic_config import DynamicConfig
from anabranch.broker.features import FinalizedFeatures
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.broker.config import BrokerSettings
    from anabranch.broker.controller_link import ControllerLink
    from anabranch.broker.coordinators.group_coordinator import GroupCoordinator
    from anabranch.broker.coordinators.transaction_coordinator import TransactionCoordinator
    from anabranch.broker.metadata_cache import MetadataCache
    from anabranch.broker.producer_ids import ProducerIds
    from anabranch.broker.replication.fetch_sessions import FetchSessionCache
    from anabranch.broker.replication.replica_manager import ReplicaManager
    from anabranch.broker.throttling import Throttling
    from anabranch.broker.topic_configs import TopicConfigs
    from anabranch.controller.controller import Controller
    from anabranch.controller.zk.session import ZkSession


class ControllerFence:
    """Refuses requests of a controller that was replaced, or that speaks to an earlier life of this broker.

    Shared by LeaderAndIsr, StopReplica and UpdateMetadata: an epoch seen in one of them counts for all.
    """

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        """Held for the whole of a request, so that they are carried out in the order in which they came.

        They may come over two connections: what has to wait here was perhaps given up and sent again, and followed by
        the deletion of the replica that it is about.
        """
        self.controller_epoch = 0
        self.broker_epoch = -1
        """The czxid of this broker's registration; -1 while it has none."""
        self._registered: asyncio.Event | None = None

    def await_registration(self) -> None:
        """From now until `register` no request of a controller is admitted, or refused: which life it means is unknown.

        A controller that has not noticed that this broker was killed sends its next request to the process that came
        after it, and would find a log that may have lost its end with the machine's memory.
        """
        self._registered = asyncio.Event()

    def register(self, broker_epoch: int) -> None:
        """This broker is registered with a (new) epoch."""
        self.broker_epoch = broker_epoch
        if self._registered is not None:
            self._registered.set()

    async def registered(self) -> None:
        """Wait until it is known for which life of this broker a request can be meant."""
        if self._registered is not None:
            await self._registered.wait()

    def admit(self, *, controller_epoch: int, broker_epoch: int) -> None:
        """Raise STALE_CONTROLLER_EPOCH or STALE_BROKER_EPOCH, or remember the (newer) controller epoch.

        A broker epoch above our own belongs to a registration whose czxid we have yet to read: it is let in.
        """
        if broker_epoch != -1 and broker_epoch < self.broker_epoch:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"broker epoch {broker_epoch} < {self.broker_epoch}")
        if controller_epoch < self.controller_epoch:
            raise KafkaError(
                ErrorCode.STALE_CONTROLLER_EPOCH, f"controller epoch {controller_epoch} < {self.controller_epoch}"
            )
        self.controller_epoch = controller_epoch


@dataclass(slots=True, kw_only=True)
class Services:
    """What the handlers of one node work with."""

    settings: BrokerSettings
    """As they are now: replaced as a whole when one is changed (`dynamic`)."""
    metadata: MetadataCache
    topic_configs: TopicConfigs
    controller_link: ControllerLink
    producer_ids: ProducerIds
    session: ZkSession
    """The live ZooKeeper session; replaced after an expiry."""
    clock_ms: Callable[[], int]
    """Wall-clock milliseconds that run with the event loop's clock."""
    rng: random.Random
    fence: ControllerFence = field(default_factory=ControllerFence)
    config_changes: ConfigChanges = field(default_factory=lambda: ConfigChanges({}))
    dynamic: DynamicConfig = field(init=False)
    features: FinalizedFeatures = field(default_factory=FinalizedFeatures)
    cluster_id: str = ""
    controller: Controller | None = None
    replicas_if_broker: ReplicaManager | None = None
    groups_if_broker: GroupCoordinator | None = None
    transactions_if_any: TransactionCoordinator | None = None
    throttling_if_broker: Throttling | None = None
    fetch_sessions_if_any: FetchSessionCache | None = None
    coordinator_failpoint: Callable[[str], None] | None = None
    """Told of the steps of the transaction coordinator, for tests."""
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("anabranch.broker"))

    def __post_init__(self) -> None:
        self.dynamic = DynamicConfig(self.settings)

    @property
    def replicas(self) -> ReplicaManager:
        """The replicas of this broker."""
        assert self.replicas_if_broker is not None, "a controller-only node serves no partition"
        return self.replicas_if_broker

    @property
    def groups(self) -> GroupCoordinator:
        """The group coordinator of this broker."""
        assert self.groups_if_broker is not None, "a controller-only node coordinates no group"
        return self.groups_if_broker

    @property
    def transactions(self) -> TransactionCoordinator:
        """The transaction coordinator of this broker, which begins with the first that is asked of it."""
        if self.transactions_if_any is None:
            from anabranch.broker.coordinators.transaction_coordinator import TransactionCoordinator

            self.transactions_if_any = TransactionCoordinator(self, failpoint=self.coordinator_failpoint)
        return self.transactions_if_any

    def on_leader(self, topic: str, _partition: int, _leader_epoch: int) -> None:
        """Leadership in `__transaction_state` calls for a transaction coordinator, if there is none yet."""
        if topic == "__transaction_state" and self.transactions_if_any is None:
            self.transactions_if_any = self.transactions  # which looks for itself what this broker leads

    @property
    def fetch_sessions(self) -> FetchSessionCache:
        """The fetch sessions of this broker, which begin with the first fetcher that asks for one."""
        if self.fetch_sessions_if_any is None:
            from anabranch.broker.replication.fetch_sessions import FetchSessionCache

            self.fetch_sessions_if_any = FetchSessionCache(self.settings.max_incremental_fetch_session_cache_slots)
        return self.fetch_sessions_if_any

    def now_ms(self) -> int:
        """Wall-clock milliseconds, as record timestamps use them; `clock_ms` decides where they come from."""
        return self.clock_ms()
