"""A Kafka-protocol cluster, and its clients: topics split and merge, and the records of each key stay in order.

    from anabranch import Admin, Cluster, Consumer, NewTopic, Producer, TopicPartition

Names are imported when first used: a program that only produces does not import a broker, nor a broker the consumer.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.clients.admin import Admin
    from anabranch.clients.consumer.consumer import Consumer
    from anabranch.clients.consumer.consumer_record import ConsumerRecord
    from anabranch.clients.consumer.listener import PartitionKeyRebalanceListener
    from anabranch.clients.consumer.metrics import ConsumerMetrics
    from anabranch.clients.group_metadata import ConsumerGroupMetadata
    from anabranch.clients.producer.metrics import ProducerMetrics
    from anabranch.clients.producer.partitioner import ClusterView, Partitioner, StickyPartitioner
    from anabranch.clients.producer.producer import Producer
    from anabranch.clients.producer.producer_record import RecordMetadata
    from anabranch.clients.producer.transaction_errors import AbortableError, FatalError, ProducerFenced
    from anabranch.clients.streams.cogrouped_stream import CogroupedStream
    from anabranch.clients.streams.config import StreamsConfig
    from anabranch.clients.streams.context import Clock, Context, Handler, ReadOnlyStore, Store, Timer, Timers
    from anabranch.clients.streams.global_table import GlobalTable
    from anabranch.clients.streams.queries import (
        FailureReason,
        KeyMetadata,
        KeyQuery,
        PartitionState,
        QueryFailure,
        QueryRefused,
        QueryResult,
        QueryRow,
        RangeQuery,
        WindowQuery,
    )
    from anabranch.clients.streams.serdes import BYTES, JSON, TEXT, Serde, Undecodable
    from anabranch.clients.streams.stream import Stream, Table
    from anabranch.clients.streams.streams import Streams
    from anabranch.clients.streams.streams_errors import StreamsError
    from anabranch.clients.streams.topology import Topology
    from anabranch.clients.streams.windowed_aggregation import Emit, LateTopic
    from anabranch.clients.streams.windowed_stream import WindowedCogroupedStream, WindowedStream
    from anabranch.clients.streams.windows import JoinWindows, SessionWindows, SlidingWindows, TimeWindows, Windowed
    from anabranch.clients.topic_admin import NewTopic
    from anabranch.cluster.in_process import Cluster
    from anabranch.protocol.errors import ErrorCode, KafkaError
    from anabranch.protocol.topic_partition import TopicPartition

_HOMES = {
    "AbortableError": "clients.producer.transaction_errors",
    "Admin": "clients.admin",
    "BYTES": "clients.streams.serdes",
    "Clock": "clients.streams.context",
    "Cluster": "cluster.in_process",
    "ClusterView": "clients.producer.partitioner",
    "CogroupedStream": "clients.streams.cogrouped_stream",
    "Consumer": "clients.consumer.consumer",
    "ConsumerGroupMetadata": "clients.group_metadata",
    "ConsumerMetrics": "clients.consumer.metrics",
    "ConsumerRecord": "clients.consumer.delivery",
    "Context": "clients.streams.context",
    "Emit": "clients.streams.windowed_aggregation",
    "ErrorCode": "protocol.errors",
    "FailureReason": "clients.streams.queries",
    "FatalError": "clients.producer.transaction_errors",
    "GlobalTable": "clients.streams.global_table",
    "Handler": "clients.streams.context",
    "JSON": "clients.streams.serdes",
    "JoinWindows": "clients.streams.windows",
    "KafkaError": "protocol.errors",
    "KeyMetadata": "clients.streams.queries",
    "KeyQuery": "clients.streams.queries",
    "LateTopic": "clients.streams.windowed_aggregation",
    "NewTopic": "clients.topic_admin",
    "PartitionKeyRebalanceListener": "clients.consumer.listener",
    "PartitionState": "clients.streams.queries",
    "Partitioner": "clients.producer.partitioner",
    "Producer": "clients.producer.producer",
    "ProducerFenced": "clients.producer.transaction_errors",
    "ProducerMetrics": "clients.producer.metrics",
    "QueryFailure": "clients.streams.queries",
    "QueryRefused": "clients.streams.queries",
    "QueryResult": "clients.streams.queries",
    "QueryRow": "clients.streams.queries",
    "RangeQuery": "clients.streams.queries",
    "ReadOnlyStore": "clients.streams.context",
    "RecordMetadata": "clients.producer.producer_record",
    "Serde": "clients.streams.serdes",
    "SessionWindows": "clients.streams.windows",
    "SlidingWindows": "clients.streams.windows",
    "StickyPartitioner": "clients.producer.partitioner",
    "Store": "clients.streams.context",
    "Stream": "clients.streams.stream",
    "Streams": "clients.streams.streams",
    "StreamsConfig": "clients.streams.config",
    "StreamsError": "clients.streams.streams_errors",
    "TEXT": "clients.streams.serdes",
    "Table": "clients.streams.stream",
    "TimeWindows": "clients.streams.windows",
    "Timer": "clients.streams.context",
    "Timers": "clients.streams.context",
    "TopicPartition": "protocol.topic_partition",
    "Topology": "clients.streams.topology",
    "Undecodable": "clients.streams.serdes",
    "WindowQuery": "clients.streams.queries",
    "Windowed": "clients.streams.windows",
    "WindowedCogroupedStream": "clients.streams.windowed_stream",
    "WindowedStream": "clients.streams.windowed_stream",
}

__all__ = [
    "BYTES",
    "JSON",
    "TEXT",
    "AbortableError",
    "Admin",
    "Clock",
    "Cluster",
    "ClusterView",
    "CogroupedStream",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerMetrics",
    "ConsumerRecord",
    "Context",
    "Emit",
    "ErrorCode",
    "FailureReason",
    "FatalError",
    "GlobalTable",
    "Handler",
    "JoinWindows",
    "KafkaError",
    "KeyMetadata",
    "KeyQuery",
    "LateTopic",
    "NewTopic",
    "PartitionKeyRebalanceListener",
    "PartitionState",
    "Partitioner",
    "Producer",
    "ProducerFenced",
    "ProducerMetrics",
    "QueryFailure",
    "QueryRefused",
    "QueryResult",
    "QueryRow",
    "RangeQuery",
    "ReadOnlyStore",
    "RecordMetadata",
    "Serde",
    "SessionWindows",
    "SlidingWindows",
    "StickyPartitioner",
    "Store",
    "Stream",
    "Streams",
    "StreamsConfig",
    "StreamsError",
    "Table",
    "TimeWindows",
    "Timer",
    "Timers",
    "TopicPartition",
    "Topology",
    "Undecodable",
    "WindowQuery",
    "Windowed",
    "WindowedCogroupedStream",
    "WindowedStream",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
