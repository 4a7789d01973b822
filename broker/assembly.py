"""Puts the parts of one node together: which part is handed which others.

Nothing is started here, and nothing is asked of ZooKeeper. `broker.app` starts the parts, keeps the `Attachment` what
it should be, and stops them again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from anabranch.broker.acl_store import AclWatch
from anabranch.broker.authorizer_settings import authorizer_of
from anabranch.broker.config_changes import ConfigChanges
from anabranch.broker.controller_fence import ControllerFence
from anabranch.broker.controller_link import ControllerLink
from anabranch.broker.dynamic_config import DynamicConfig
from anabranch.broker.features import FinalizedFeatures
from anabranch.broker.group_configs import GroupConfigs
from anabranch.broker.metadata_cache import MetadataCache
from anabranch.broker.on_demand import OnDemand
from anabranch.broker.personas.persona import persona
from anabranch.broker.producer_ids import ProducerIds, from_controller
from anabranch.broker.services import BrokerServices, Services
from anabranch.broker.topic_configs import TopicConfigs
from anabranch.protocol.internal_topics import SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from anabranch.broker.attachment import Attachment
    from anabranch.broker.config import BrokerSettings
    from anabranch.broker.coordinators.shares.shares import Shares
    from anabranch.broker.coordinators.transaction_coordinator import TransactionCoordinator
    from anabranch.broker.replication.fetch_sessions import FetchSessionCache
    from anabranch.broker.replication.isr_changes import AskController
    from anabranch.broker.storage.files import Files
    from anabranch.broker.tokens import Tokens


def assemble(
    settings: BrokerSettings,
    attachment: Attachment,
    *,
    files: Files | Mapping[str, Files],
    cluster_id: str,
    rng: random.Random,
    clock_ms: Callable[[], int],
    failpoint: Callable[[str], None] | None,
    died: Callable[[Exception], None],
    tokens: Tokens | None = None,
) -> Services:
    """The parts of a node. `failpoint` is called at each step of the coordinators, `died` with a bug that ends it.

    Needs a running event loop.
    """
    dynamic, metadata, fence = DynamicConfig(settings), MetadataCache(settings.inter_broker_listener), ControllerFence()
    topic_configs = TopicConfigs(settings, lambda: attachment.session)
    metadata.on_gone(topic_configs.forget_all)
    link = ControllerLink(
        lambda: attachment.session,
        client_id=f"broker-{settings.node_id}",
        request_timeout_ms=settings.request_timeout_ms,
        security=settings.security,
    )
    producer_ids = ProducerIds(from_controller(link, settings.node_id, lambda: fence.broker_epoch))
    broker = None
    if settings.is_broker:
        fence.await_registration()
        broker = assemble_broker(
            dynamic,
            attachment,
            files=files,
            metadata=metadata,
            topic_configs=topic_configs,
            producer_ids=producer_ids,
            fence=fence,
            alter_partition=link.call,
            rng=rng,
            clock_ms=clock_ms,
            failpoint=failpoint,
            died=died,
        )
    config_changes = ConfigChanges({})
    config_changes.on_change("topics", topic_configs.changed)
    config_changes.died = died
    authorizer = authorizer_of(settings)
    features = FinalizedFeatures(settings.withheld_features, persona(settings.kafka_version))
    features.died = died
    return Services(
        dynamic=dynamic,
        metadata=metadata,
        topic_configs=topic_configs,
        controller_link=link,
        producer_ids=producer_ids,
        attachment=attachment,
        clock_ms=clock_ms,
        rng=rng,
        fence=fence,
        config_changes=config_changes,
        features=features,
        cluster_id=cluster_id,
        authorizer=authorizer,
        tokens=tokens,
        acls=None if authorizer is None else AclWatch(authorizer, died),
        broker=broker,
    )


def assemble_broker(
    dynamic: DynamicConfig,
    attachment: Attachment,
    *,
    files: Files | Mapping[str, Files],
    metadata: MetadataCache,
    topic_configs: TopicConfigs,
    producer_ids: ProducerIds,
    fence: ControllerFence,
    alter_partition: AskController,
    rng: random.Random,
    clock_ms: Callable[[], int],
    failpoint: Callable[[str], None] | None,
    died: Callable[[Exception], None],
) -> BrokerServices:
    """The parts that a node has as a broker. `alter_partition` asks the controller to change an ISR."""
    from anabranch.broker.coordinators.group_coordinator import GroupCoordinator
    from anabranch.broker.quotas import ClientQuotas
    from anabranch.broker.replication.replica_manager import ReplicaManager
    from anabranch.broker.throttling import Throttling

    settings = dynamic.static
    throttling = Throttling(
        ClientQuotas(window_ms=settings.quota_window_size_seconds * 1000, samples=settings.quota_window_num),
        clock_ms=clock_ms,
        clock_s=asyncio.get_running_loop().time,
        request_longest_ms=settings.quota_window_size_seconds * 1000,
    )
    replicas = ReplicaManager(
        settings,
        files,
        metadata=metadata,
        topic_config=topic_configs.get,
        alter_partition=alter_partition,
        broker_epoch=lambda: fence.broker_epoch,
        clock_ms=clock_ms,
        died=died,
    )
    topic_configs.on_change(replicas.config_changed)

    def transaction_coordinator() -> TransactionCoordinator:
        from anabranch.broker.coordinators.transaction_coordinator import TransactionCoordinator

        return TransactionCoordinator(
            dynamic,
            replicas,
            metadata,
            producer_ids,
            attachment,
            clock_ms=clock_ms,
            rng=rng,
            failpoint=failpoint,
        )

    transactions = OnDemand(transaction_coordinator)

    def on_leader(topic: str, _partition: int, _leader_epoch: int) -> None:
        if topic == TRANSACTION_STATE_TOPIC:
            transactions.get()  # which looks for itself what this broker leads, and listens from then on
        elif topic == SHARE_STATE_TOPIC:
            shares.get()  # the same

    group_configs = GroupConfigs(lambda: attachment.session)

    def build_shares() -> Shares:
        from anabranch.broker.coordinators.shares.share_settings import settings_of
        from anabranch.broker.coordinators.shares.shares import Shares

        return Shares(
            dynamic,
            replicas,
            metadata,
            settings=lambda group_id: settings_of(dynamic.current, group_configs.of(group_id)),
            clock_ms=clock_ms,
            rng=rng,
        )

    shares = OnDemand(build_shares)

    def fetch_sessions() -> FetchSessionCache:
        from anabranch.broker.replication.fetch_sessions import FetchSessionCache

        return FetchSessionCache(dynamic.current.max_incremental_fetch_session_cache_slots)

    replicas.on_leader(on_leader)
    return BrokerServices(
        replicas=replicas,
        groups=GroupCoordinator(
            settings,
            replicas,
            metadata,
            topic_configs,
            clock_ms=clock_ms,
            rng=rng,
            shares=shares.get,
            group_configs=group_configs,
        ),
        transactions=transactions,
        group_configs=group_configs,
        shares=shares,
        throttling=throttling,
        fetch_sessions=OnDemand(fetch_sessions),
    )
