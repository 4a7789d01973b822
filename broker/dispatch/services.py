"""The ports that every request handler gets: all that one node can do.

Both bundles are frozen: which part does what is settled when the node is put together (`broker.node.assembly`) and
stays. What changes while a node runs, changes inside a part that says so: the settings in `DynamicConfig`, the
ZooKeeper session and the controller candidate in `ClusterMembership`.

A node without the role `broker` has no replicas and no groups; its dispatcher serves none of the APIs that would ask
for them, so the properties assert instead of returning None.
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
    """The services that only a node with the role `broker` has."""

    replicas: ReplicaManager
    groups: LazyPart[GroupCoordinator]
    """Built when a client first asks for it, or when this broker leads a partition of `__consumer_offsets`."""
    transactions: LazyPart[TransactionCoordinator]
    """Built when a producer first asks for it, or when this broker leads a partition of `__transaction_state`."""
    group_configs: GroupConfigs
    """What was set for single groups."""
    shares: LazyPart[ShareServices]
    """Built when a client first asks for a shared partition, or this broker leads one of `__share_group_state`."""
    client_metrics: ClientMetricsConfigs
    """The subscriptions to metrics of clients."""
    telemetry: Telemetry | None
    """None where clients push no metrics."""
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
    """What is held for peers that do not read."""
    config_changes: ConfigChanges = field(default_factory=lambda: ConfigChanges({}))
    features: FinalizedFeatures = field(default_factory=FinalizedFeatures)
    cluster_id: str = ""
    authorizer: Authorizer | None = None
    """None: everybody may do everything."""
    acls: AclWatch | None = None
    """What keeps the authorizer's entries as ZooKeeper has them."""
    tokens: Tokens | None = None
    """The delegation tokens; None where there are none."""
    broker: BrokerServices | None = None
    """None on a node that is only a controller candidate."""
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("broker"))

    @property
    def settings(self) -> BrokerSettings:
        """The settings as they are now: replaced as a whole when one of them is changed."""
        return self.dynamic.current

    @property
    def profile(self) -> CompatibilityProfile:
        """Which Kafka this node shows to its clients."""
        return profile_for(self.dynamic.static.kafka_version)

    @property
    def has_consumer_groups(self) -> bool:
        """Whether there are consumer groups (KIP-848): as it was set, or as the Kafka that is shown."""
        given = self.settings.group_coordinator_rebalance_protocols
        return "consumer" in given.split(",") if given else self.profile.finalized_features.get("group.version", 0) > 0

    @property
    def has_share_groups(self) -> bool:
        """Whether there are groups that share partitions (KIP-932): as it was set, or as the Kafka that is shown."""
        given = self.settings.group_coordinator_rebalance_protocols
        return "share" in given.split(",") or self.profile.finalized_features.get("share.version", 0) > 0

    @property
    def has_streams_groups(self) -> bool:
        """Whether there are groups of Kafka Streams (KIP-1071): as it was set, or as the Kafka that is shown."""
        given = self.settings.group_coordinator_rebalance_protocols
        return "streams" in given.split(",") if given else self.profile.finalized_features.get("streams.version", 0) > 0

    @property
    def has_group_configs(self) -> bool:
        """Whether single groups can be set: in a Kafka that has KIP-848 groups."""
        return "group.version" in self.profile.supported_features

    @property
    def has_client_metrics(self) -> bool:
        """Whether there are subscriptions to metrics of clients: in a Kafka without ZooKeeper (KIP-714)."""
        return self.profile.has_client_metrics

    @property
    def takes_telemetry(self) -> bool:
        """Whether clients push metrics to this node."""
        return self.broker is not None and self.broker.telemetry is not None

    @property
    def telemetry(self) -> Telemetry:
        """What this broker does about metrics that clients push."""
        found = self._as_broker.telemetry
        assert found is not None, "its APIs are served only where there is one"
        return found

    @property
    def session(self) -> ZkSession:
        """The live ZooKeeper session; another one after an expiry."""
        return self.membership.session

    @property
    def controller(self) -> Controller | None:
        """This node's controller candidate, if it is one; another one after an expiry."""
        return self.membership.controller

    @property
    def replicas(self) -> ReplicaManager:
        """The replicas of this broker."""
        broker = self.broker
        assert broker is not None, NO_BROKER
        return broker.replicas

    @property
    def groups(self) -> GroupCoordinator:
        """The group coordinator of this broker."""
        return self._as_broker.groups.get()

    @property
    def transactions(self) -> TransactionCoordinator:
        """The transaction coordinator of this broker."""
        return self._as_broker.transactions.get()

    @property
    def client_metrics(self) -> ClientMetricsConfigs:
        """The subscriptions to metrics of clients."""
        return self._as_broker.client_metrics

    @property
    def shares(self) -> ShareServices:
        """What this broker does about shared partitions."""
        return self._as_broker.shares.get()

    @property
    def fetch_sessions(self) -> FetchSessionCache:
        """The incremental fetch sessions of this broker's clients and followers."""
        return self._as_broker.fetch_sessions.get()

    @property
    def throttling(self) -> Throttling | None:
        """The client quotas of this node; None on one that is no broker."""
        return None if self.broker is None else self.broker.throttling

    @property
    def _as_broker(self) -> BrokerServices:
        assert self.broker is not None, NO_BROKER
        return self.broker

    def now_ms(self) -> int:
        """Wall-clock milliseconds, as record timestamps use them; `clock_ms` decides where they come from."""
        return self.clock_ms()
