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
    from clients.producer.producer import Producer
    from clients.producer.queues import RecordMetadata
    from protocol.topic_partition import TopicPartition

_HOMES = {
    "Admin": "clients.admin",
    "Consumer": "clients.consumer.consumer",
    "ConsumerRecord": "clients.consumer.delivery",
    "NewTopic": "clients.admin",
    "PartitionKeyRebalanceListener": "clients.consumer.listener",
    "Producer": "clients.producer.producer",
    "RecordMetadata": "clients.producer.queues",
    "TopicPartition": "protocol.topic_partition",
}

__all__ = [
    "Admin",
    "Consumer",
    "ConsumerRecord",
    "NewTopic",
    "PartitionKeyRebalanceListener",
    "Producer",
    "RecordMetadata",
    "TopicPartition",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
