"""A blocking test administers its cluster, also with a running loop, and gets refusals."""

from __future__ import annotations

import pytest

from anabranch import KafkaError, NewTopic
from anabranch.testing.clusters import Clusters


async def test_topics_are_created_and_described() -> None:
    with Clusters() as clusters, clusters.running() as kafka:
        kafka.admin.create_topics([NewTopic(name="orders", partitions=3)])
        assert kafka.admin.list_topics() == ["orders"]
        assert len(kafka.admin.describe_topic("orders").partitions) == 3
        with pytest.raises(KafkaError, match="TOPIC_ALREADY_EXISTS"):
            kafka.admin.create_topics([NewTopic(name="orders", partitions=3)])
        for name in ("describe", "network", "start_", "_loop"):
            with pytest.raises(AttributeError, match="Admin has no blocking method"):
                getattr(kafka.admin, name)
