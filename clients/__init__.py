"""Clients of a cluster: `Producer`, `Consumer` and `Admin`, and what they hand out.

Names are imported when first used: a broker's replica fetcher needs the connection, not the consumer.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clients.admin import Admin, NewTopic
    from clients.consumer.consumer import Consumer
    from clients.consumer.delivery import ConsumerRecord
    from clients.consumer.listener import PartitionKeyRebalanceListener
    from clients.consumer.metrics import ConsumerMetrics
    from clients.group_metadata import ConsumerGroupMetadata
    from clients.partitioner import Cluster, Partitioner, StickyPartitioner
    from clients.producer.metrics import ProducerMetrics
    from clients.producer.producer import Producer
    from clients.producer.queues import RecordMetadata
    from clients.producer.verdicts import AbortableError, FatalError, ProducerFenced
    from protocol.topic_partition import TopicPartition

_HOMES = {
    "AbortableError": "clients.producer.verdicts",
    "Admin": "clients.admin",
    "Cluster": "clients.partitioner",
    "Consumer": "clients.consumer.consumer",
    "ConsumerGroupMetadata": "clients.group_metadata",
    "ConsumerMetrics": "clients.consumer.metrics",
    "ConsumerRecord": "clients.consumer.delivery",
    "FatalError": "clients.producer.verdicts",
    "NewTopic": "clients.admin",
    "Partitioner": "clients.partitioner",
    "PartitionKeyRebalanceListener": "clients.consumer.listener",
    "Producer": "clients.producer.producer",
    "ProducerFenced": "clients.producer.verdicts",
    "ProducerMetrics": "clients.producer.metrics",
    "RecordMetadata": "clients.producer.queues",
    "StickyPartitioner": "clients.partitioner",
    "TopicPartition": "protocol.topic_partition",
}

__all__ = [
    "AbortableError",
    "Admin",
    "Cluster",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerMetrics",
    "ConsumerRecord",
    "FatalError",
    "NewTopic",
    "PartitionKeyRebalanceListener",
    "Partitioner",
    "Producer",
    "ProducerFenced",
    "ProducerMetrics",
    "RecordMetadata",
    "StickyPartitioner",
    "TopicPartition",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
