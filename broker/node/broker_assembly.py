"""Creates and connects the parts of a broker: replicas, coordinators, telemetry, throttling, fetch sessions.

Coordinators and fetch sessions are created on first use, but imported here (see `dispatcher`). Nothing is started.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anabranch.broker.coordinators.groups.group_coordinator import GroupCoordinator
from anabranch.broker.coordinators.share_partitions.share_services import ShareServices
from anabranch.broker.coordinators.share_partitions.share_settings import settings_of
from anabranch.broker.coordinators.transactions.transaction_coordinator import TransactionCoordinator
from anabranch.broker.dispatch.services import BrokerServices
from anabranch.broker.metadata.group_configs import GroupConfigs
from anabranch.broker.profiles.profile import profile_for
from anabranch.broker.quotas.client_quotas import ClientQuotas
from anabranch.broker.quotas.throttling import Throttling
from anabranch.broker.replication.fetch_sessions import FetchSessionCache
from anabranch.broker.replication.replica_manager import ReplicaManager
from anabranch.broker.tasks.lazy_part import LazyPart
from anabranch.broker.telemetry.client_metrics_configs import ClientMetricsConfigs
from anabranch.broker.telemetry.telemetry import Telemetry
from anabranch.protocol.internal_topics import CONSUMER_OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from anabranch.protocol.records.compression import load_codecs

if TYPE_CHECKING:
    from anabranch.broker.config.dynamic_config import DynamicConfig
    from anabranch.broker.membership.cluster_membership import ClusterMembership
    from anabranch.broker.membership.controller_fence import ControllerFence
    from anabranch.broker.membership.producer_ids import ProducerIds
    from anabranch.broker.metadata.metadata_cache import MetadataCache
    from anabranch.broker.metadata.topic_configs import TopicConfigs
    from anabranch.broker.replication.isr_changes import AskController
    from anabranch.broker.storage.files import Files


@dataclass(frozen=True, kw_only=True)
class BrokerAssembly:
    """Creates a broker's parts from the parts that every node has. Needs a running event loop."""

    dynamic: DynamicConfig
    attachment: ClusterMembership
    metadata: MetadataCache
    topic_configs: TopicConfigs
    producer_ids: ProducerIds
    fence: ControllerFence
    alter_partition: AskController
    rng: random.Random
    clock_ms: Callable[[], int]
    """The time of day."""
    steady_ms: Callable[[], int]
    """The time for deadlines."""
    failpoint: Callable[[str], None] | None
    died: Callable[[Exception], None]

    def assemble(self, files: Files | Mapping[str, Files]) -> BrokerServices:
        """Create the parts of the broker."""
        load_codecs()
        replicas = self._replicas(files)
        group_configs = GroupConfigs(lambda: self.attachment.session)
        client_metrics = ClientMetricsConfigs(lambda: self.attachment.session)
        transactions = LazyPart(lambda: self._transactions(replicas))
        shares = LazyPart(lambda: self._shares(replicas, group_configs))
        groups = LazyPart(lambda: self._groups(replicas, shares, group_configs))
        by_topic: Mapping[str, LazyPart[Any]] = {
            CONSUMER_OFFSETS_TOPIC: groups,
            TRANSACTION_STATE_TOPIC: transactions,
            SHARE_STATE_TOPIC: shares,
        }

        def on_leader(topic: str, _partition: int, _leader_epoch: int) -> None:
            if topic in by_topic:
                by_topic[topic].get()  # it loads the partitions that this broker leads, and registers its own listener

        replicas.on_leader(on_leader)
        fetch_sessions = LazyPart(self._fetch_sessions)
        return BrokerServices(
            replicas=replicas,
            groups=groups,
            transactions=transactions,
            group_configs=group_configs,
            shares=shares,
            client_metrics=client_metrics,
            telemetry=self._telemetry(client_metrics, replicas),
            throttling=self._throttling(fetch_sessions),
            fetch_sessions=fetch_sessions,
        )

    def _replicas(self, files: Files | Mapping[str, Files]) -> ReplicaManager:
        replicas = ReplicaManager(
            self.dynamic.static,
            files,
            metadata=self.metadata,
            topic_config=self.topic_configs.get,
            alter_partition=self.alter_partition,
            broker_epoch=lambda: self.fence.broker_epoch,
            clock_ms=self.clock_ms,
            died=self.died,
        )
        self.topic_configs.on_change(replicas.config_changed)
        return replicas

    def _groups(
        self, replicas: ReplicaManager, shares: LazyPart[ShareServices], group_configs: GroupConfigs
    ) -> GroupCoordinator:
        return GroupCoordinator(
            self.dynamic.static,
            replicas,
            self.metadata,
            self.topic_configs,
            clock_ms=self.steady_ms,
            date_ms=self.clock_ms,
            rng=self.rng,
            shares=shares.get,
            group_configs=group_configs,
        )

    def _transactions(self, replicas: ReplicaManager) -> TransactionCoordinator:
        return TransactionCoordinator(
            self.dynamic,
            replicas,
            self.metadata,
            self.producer_ids,
            self.attachment,
            clock_ms=self.clock_ms,
            steady_ms=self.steady_ms,
            rng=self.rng,
            failpoint=self.failpoint,
        )

    def _shares(self, replicas: ReplicaManager, group_configs: GroupConfigs) -> ShareServices:
        return ShareServices(
            self.dynamic,
            replicas,
            self.metadata,
            settings=lambda group_id: settings_of(self.dynamic.current, group_configs.of(group_id)),
            clock_ms=self.steady_ms,
            date_ms=self.clock_ms,
            rng=self.rng,
        )

    def _telemetry(self, client_metrics: ClientMetricsConfigs, replicas: ReplicaManager) -> Telemetry | None:
        settings = self.dynamic.static
        if not settings.client_telemetry_enable or not profile_for(settings.kafka_version).has_client_metrics:
            return None
        return Telemetry(client_metrics, replicas.inspector.decompress_content, self.clock_ms)

    def _throttling(self, fetch_sessions: LazyPart[FetchSessionCache]) -> Throttling:
        settings = self.dynamic.static
        return Throttling(
            ClientQuotas(window_ms=settings.quota_window_size_seconds * 1000, samples=settings.quota_window_num),
            clock_ms=self.steady_ms,
            clock_s=asyncio.get_running_loop().time,
            request_longest_ms=settings.quota_window_size_seconds * 1000,
            take_back=lambda request, response: fetch_sessions.get().take_back(request, response),
        )

    def _fetch_sessions(self) -> FetchSessionCache:
        return FetchSessionCache(self.dynamic.current.max_incremental_fetch_session_cache_slots)
