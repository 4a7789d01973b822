"""Creates the parts of one node and connects them (dependency injection).

It starts nothing and does not call ZooKeeper. `broker.node.app` starts and stops the parts, and updates the
`ClusterMembership`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from anabranch.broker.authorization.acl_store import AclWatch
from anabranch.broker.authorization.authorizer_settings import authorizer_of
from anabranch.broker.config.config_changes import ConfigChanges
from anabranch.broker.config.dynamic_config import DynamicConfig
from anabranch.broker.dispatch.services import Services
from anabranch.broker.membership.controller_fence import ControllerFence
from anabranch.broker.membership.controller_link import ControllerLink
from anabranch.broker.membership.producer_ids import ProducerIds, from_controller
from anabranch.broker.metadata.features import FinalizedFeatures
from anabranch.broker.metadata.metadata_cache import MetadataCache
from anabranch.broker.metadata.topic_configs import TopicConfigs
from anabranch.broker.profiles.profile import profile_for
from anabranch.broker.quotas.response_memory import ResponseMemory

if TYPE_CHECKING:
    from anabranch.broker.config.broker_settings import BrokerSettings
    from anabranch.broker.credentials.delegation_tokens import Tokens
    from anabranch.broker.membership.cluster_membership import ClusterMembership
    from anabranch.broker.storage.files import Files


def assemble(
    settings: BrokerSettings,
    attachment: ClusterMembership,
    *,
    files: Files | Mapping[str, Files],
    cluster_id: str,
    rng: random.Random,
    clock_ms: Callable[[], int],
    steady_ms: Callable[[], int],
    failpoint: Callable[[str], None] | None,
    died: Callable[[Exception], None],
    tokens: Tokens | None = None,
) -> Services:
    """Create the parts of a node. Needs a running event loop.

    `failpoint` is called at each step of the coordinators, `died` with an unexpected exception that must end the node.
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
        from anabranch.broker.node.broker_assembly import BrokerAssembly

        fence.await_registration()
        broker = BrokerAssembly(
            dynamic=dynamic,
            attachment=attachment,
            metadata=metadata,
            topic_configs=topic_configs,
            producer_ids=producer_ids,
            fence=fence,
            alter_partition=link.call,
            rng=rng,
            clock_ms=clock_ms,
            steady_ms=steady_ms,
            failpoint=failpoint,
            died=died,
        ).assemble(files)
    config_changes = ConfigChanges({"topics": topic_configs.reload_topic})
    config_changes.on_failure = died
    authorizer = authorizer_of(settings)
    features = FinalizedFeatures(settings.withheld_features, profile_for(settings.kafka_version))
    features.died = died
    return Services(
        dynamic=dynamic,
        metadata=metadata,
        topic_configs=topic_configs,
        controller_link=link,
        producer_ids=producer_ids,
        membership=attachment,
        clock_ms=clock_ms,
        rng=rng,
        fence=fence,
        response_memory=ResponseMemory.of(settings),
        config_changes=config_changes,
        features=features,
        cluster_id=cluster_id,
        authorizer=authorizer,
        tokens=tokens,
        acls=None if authorizer is None else AclWatch(authorizer, died),
        broker=broker,
    )
