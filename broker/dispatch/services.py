"""The services of one node that every request handler can use.

Both classes are frozen: `broker.node.assembly` decides which part does what. State that changes while a node runs is
inside the parts: the settings in `DynamicConfig`, the ZooKeeper session and the controller candidate in
`ClusterMembership`.

A node without the role `broker` has no replicas and no groups. Its dispatcher serves no API that needs them, so the
properties assert instead of returning None.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Final

from anabranch.broker.config.config_changes import ConfigChanges
from anabranch.broker.membership.controller_fence import ControllerFence
from anabranch.broker.metadata.features import FinalizedFeatures
from anabranch.broker.metadata.metadata_rows import MetadataRows
from anabranch.broker.profiles.profile import profile_for
from anabranch.broker.quotas.response_memory import ResponseMemory
from anabranch.protocol.values import value

if TYPE_CHECKING:
    from anabranch.broker.authorization.acl_store import AclWatch
    from anabranch.broker.authorization.authorizer import Authorizer
    from anabranch.broker.config.broker_settings import BrokerSettings
    from anabranch.broker.config.dynamic_config import DynamicConfig
    from anabranch.broker.coordinators.groups.group_coordinator import GroupCoordinator
    from anabranch.broker.coordinators.share_partitions.share_services import ShareServices
    from anabranch.broker.coordinators.transactions.transaction_coordinator import TransactionCoordinator
    from anabranch.broker.credentials.delegation_tokens import Tokens
    from anabranch.broker.membership.cluster_membership import ClusterMembership
    from anabranch.broker.membership.controller_link import ControllerLink
    from anabranch.broker.membership.producer_ids import ProducerIds
    from anabranch.broker.metadata.group_configs import GroupConfigs
    from anabranch.broker.metadata.metadata_cache import MetadataCache
    from anabranch.broker.metadata.topic_configs import TopicConfigs
    from anabranch.broker.profiles.profile import CompatibilityProfile
    from anabranch.broker.quotas.throttling import Throttling
    from anabranch.broker.replication.fetch_sessions import FetchSessionCache
    from anabranch.broker.replication.replica_manager import ReplicaManager
    from anabranch.broker.tasks.lazy_part import LazyPart
    from anabranch.broker.telemetry.client_metrics_configs import ClientMetricsConfigs
    from anabranch.broker.telemetry.telemetry import Telemetry
    from anabranch.controller.controller import Controller
    from anabranch.controller.zk.session import ZkSession


NO_BROKER: Final = "a node that is only a controller candidate has no replicas and no groups"


@value(kw_only=True)
class BrokerServices:
    """The services of a node with the role `broker`."""

    replicas: ReplicaManager
    groups: LazyPart[GroupCoordinator]
    """Built at the first request for it, or when this broker leads a partition of `__consumer_offsets`."""
    transactions: LazyPart[TransactionCoordinator]
    """Built at the first request for it, or when this broker leads a partition of `__transaction_state`."""
    group_configs: GroupConfigs
    """The configurations of groups."""
    shares: LazyPart[ShareServices]
    """Built at the first request for a shared partition, or when this broker leads one of `__share_group_state`."""
    client_metrics: ClientMetricsConfigs
    """The subscriptions to client metrics."""
    telemetry: Telemetry | None
    """None if clients cannot push metrics."""
    throttling: Throttling
    fetch_sessions: LazyPart[FetchSessionCache]


@value(kw_only=True)
class Services:
    """The services of one node, for its handlers."""

    dynamic: DynamicConfig
    metadata: MetadataCache
    topic_configs: TopicConfigs
    controller_link: ControllerLink
    producer_ids: ProducerIds
    membership: ClusterMembership
    clock_ms: Callable[[], int]
    """Wall-clock milliseconds that run with the event loop's clock."""
    rng: random.Random
    fence: ControllerFence = field(default_factory=ControllerFence)
    metadata_rows: MetadataRows = field(default_factory=MetadataRows)
    response_memory: ResponseMemory = field(default_factory=lambda: ResponseMemory(-1, 600.0))
    """Counts the responses that peers have not read."""
    config_changes: ConfigChanges = field(default_factory=lambda: ConfigChanges({}))
    features: FinalizedFeatures = field(default_factory=FinalizedFeatures)
    cluster_id: str = ""
    authorizer: Authorizer | None = None
    """None: every operation is allowed."""
    acls: AclWatch | None = None
    """Keeps the authorizer's entries equal to ZooKeeper's."""
    tokens: Tokens | None = None
    """The delegation tokens; None if disabled."""
    broker: BrokerServices | None = None
    """None on a node that is only a controller candidate."""
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("anabranch.broker"))

    @property
    def settings(self) -> BrokerSettings:
        """Return the present settings; a change replaces the whole object."""
        return self.dynamic.current

    @property
    def profile(self) -> CompatibilityProfile:
        """Return the profile: the version of Kafka that this node shows to clients."""
        return profile_for(self.dynamic.static.kafka_version)

    @property
    def has_consumer_groups(self) -> bool:
        """Return whether KIP-848 consumer groups are served: as configured, or as in the profile's Kafka version."""
        given = self.settings.group_coordinator_rebalance_protocols
        return "consumer" in given.split(",") if given else self.profile.finalized_features.get("group.version", 0) > 0

    @property
    def has_share_groups(self) -> bool:
        """Return whether share groups (KIP-932) are served: as configured, or as in the profile's Kafka version."""
        given = self.settings.group_coordinator_rebalance_protocols
        return "share" in given.split(",") or self.profile.finalized_features.get("share.version", 0) > 0

    @property
    def has_streams_groups(self) -> bool:
        """Return whether streams groups (KIP-1071) are served: as configured, or as in the profile's Kafka version."""
        given = self.settings.group_coordinator_rebalance_protocols
        return "streams" in given.split(",") if given else self.profile.finalized_features.get("streams.version", 0) > 0

    @property
    def has_group_configs(self) -> bool:
        """Return whether groups have configurations: in versions of Kafka with KIP-848 groups."""
        return "group.version" in self.profile.supported_features

    @property
    def has_client_metrics(self) -> bool:
        """Return whether clients' metrics have subscriptions: in versions of Kafka without ZooKeeper (KIP-714)."""
        return self.profile.has_client_metrics

    @property
    def takes_telemetry(self) -> bool:
        """Return whether clients can push metrics to this node."""
        return self.broker is not None and self.broker.telemetry is not None

    @property
    def telemetry(self) -> Telemetry:
        """Return the client telemetry of this broker."""
        found = self._as_broker.telemetry
        assert found is not None, "the telemetry APIs need a telemetry receiver"
        return found

    @property
    def session(self) -> ZkSession:
        """Return the live ZooKeeper session; an expiry replaces it."""
        return self.membership.session

    @property
    def controller(self) -> Controller | None:
        """Return this node's controller candidate, if it has one; an expiry replaces it."""
        return self.membership.controller

    @property
    def replicas(self) -> ReplicaManager:
        """Return the replica manager of this broker."""
        broker = self.broker
        assert broker is not None, NO_BROKER
        return broker.replicas

    @property
    def groups(self) -> GroupCoordinator:
        """Return the group coordinator of this broker."""
        return self._as_broker.groups.get()

    @property
    def transactions(self) -> TransactionCoordinator:
        """Return the transaction coordinator of this broker."""
        return self._as_broker.transactions.get()

    @property
    def client_metrics(self) -> ClientMetricsConfigs:
        """Return the subscriptions to client metrics."""
        return self._as_broker.client_metrics

    @property
    def shares(self) -> ShareServices:
        """Return the services for share groups of this broker."""
        return self._as_broker.shares.get()

    @property
    def fetch_sessions(self) -> FetchSessionCache:
        """Return the fetch sessions of this broker's clients and followers."""
        return self._as_broker.fetch_sessions.get()

    @property
    def throttling(self) -> Throttling | None:
        """Return the client quotas of this node; None on a node that is no broker."""
        return None if self.broker is None else self.broker.throttling

    @property
    def _as_broker(self) -> BrokerServices:
        assert self.broker is not None, NO_BROKER
        return self.broker

    def now_ms(self) -> int:
        """Return wall-clock milliseconds, as record timestamps use them; `clock_ms` is their source."""
        return self.clock_ms()
