"""The topics of a Streams application that a heartbeat creates."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from anabranch.broker.administration import topic_creation
from anabranch.broker.authorization.peer import UNKNOWN_PEER
from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.dispatch.request_context import RequestContext
from anabranch.broker.handlers.streams_group_heartbeat import make_topics
from anabranch.broker.metadata.metadata_cache import BrokerImage, ClusterImage
from anabranch.protocol.apis.streams_group_heartbeat import TopicInfo
from tests.broker.serving import lone_services


async def test_heartbeat_is_answered_while_zookeeper_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The member's session would end while it waits."""
    monkeypatch.setattr(topic_creation, "AUTO_CREATION_MS", 10)
    services = await lone_services(BrokerSettings(port=0))
    services.metadata.image = ClusterImage(brokers={1: BrokerImage(1, "h", 9001, None, 1)}, controller_id=1)
    services.session.lose_connection()  # type: ignore[attr-defined]
    names = [TopicInfo(name=name, partitions=1, replication_factor=1, topic_configs=[]) for name in ("a", "b")]
    outcome = SimpleNamespace(missing=[(name, 1) for name in names])
    async with asyncio.timeout(10):
        said = await make_topics(RequestContext(services, 0, "test", UNKNOWN_PEER), outcome)  # type: ignore[arg-type]
    assert said == "; they cannot be created: a (ZooKeeper does not answer.)"
