"""The metrics of a node: names, kinds, help texts, and how each is read.

`FAMILIES` is the complete list, and docs/metrics.md documents each (`tests/broker/metrics/test_node_families.py`).
"""

from __future__ import annotations

from typing import Final

from anabranch.broker.metrics import readings
from anabranch.broker.metrics.family import COUNTER, GAUGE, HISTOGRAM, Family
from anabranch.broker.metrics.readings import Reading

FAMILIES: Final[tuple[Family[Reading], ...]] = (
    Family("brokers", GAUGE, "Live brokers in the node's metadata.", lambda r: len(r.services.metadata.image.brokers)),
    Family(
        "controller_active", GAUGE, "1 on the node that is the active controller.", lambda r: int(bool(r.controller))
    ),
    Family("controller_epoch", GAUGE, "The newest controller epoch in the node's metadata.", readings.controller_epoch),
    Family("partitions_led", GAUGE, "Partitions that the broker leads.", lambda r: r.replicas.led),
    Family("partitions_followed", GAUGE, "Partitions that the broker follows.", lambda r: r.replicas.followed),
    Family(
        "partitions_under_replicated",
        GAUGE,
        "Partitions that the broker leads and that have replicas out of sync.",
        lambda r: r.replicas.under_replicated,
    ),
    Family(
        "partitions_under_min_isr",
        GAUGE,
        "Partitions that the broker leads and that have fewer than min.insync.replicas in sync.",
        lambda r: r.replicas.under_min_isr,
    ),
    Family(
        "partitions_offline",
        GAUGE,
        "Partitions without a leader; only the active controller reports it.",
        readings.offline,
    ),
    Family(
        "isr_shrinks_total", COUNTER, "Replicas that the broker, as leader, removed from an ISR.", readings.isr_shrinks
    ),
    Family(
        "isr_expansions_total",
        COUNTER,
        "Replicas that the broker, as leader, added to an ISR.",
        readings.isr_expansions,
    ),
    Family(
        "topic_log_size_bytes",
        GAUGE,
        "Size of the broker's logs of a topic.",
        lambda r: readings.by_topic(r.replicas.size_bytes),
    ),
    Family(
        "topic_log_end_offset",
        GAUGE,
        "Sum of the log end offsets of the partitions of a topic that the broker leads.",
        lambda r: readings.by_topic(r.replicas.end_offsets),
    ),
    Family("groups", GAUGE, "Consumer groups that the broker coordinates, by state.", readings.groups),
    Family(
        "group_lag",
        GAUGE,
        "Lag of a group in a topic: high watermarks minus committed offsets, summed over partitions.",
        lambda r: readings.by_group(r.lags.sums),
    ),
    Family(
        "group_lag_max",
        GAUGE,
        "Lag of a group in the topic's partition with the largest lag.",
        lambda r: readings.by_group(r.lags.largest),
    ),
    Family(
        "group_partition_lag",
        GAUGE,
        "Lag of a group by partition, for the partitions with the largest lags.",
        readings.partition_lags,
    ),
    Family(
        "transactions_open",
        GAUGE,
        "Open transactions that the broker coordinates, by state.",
        readings.open_transactions,
    ),
    Family("connections", GAUGE, "Connections to the node.", lambda r: r.node.server.connection_count),
    Family("requests_total", COUNTER, "Requests received, by API.", readings.requests),
    Family(
        "request_seconds",
        HISTOGRAM,
        "Time from reading a request to its response.",
        lambda r: readings.by_api(r.requests.total_s),
    ),
    Family(
        "request_work_seconds",
        HISTOGRAM,
        "Processing time of a request, without the time in purgatory.",
        lambda r: readings.by_api(r.requests.work_s),
    ),
    Family("request_errors_total", COUNTER, "Error codes in responses, at any level, by API.", readings.errors),
    Family("client_requests_total", COUNTER, "Responses sent, by client id.", readings.client_requests),
    Family(
        "client_bytes_total", COUNTER, "Bytes of records produced and fetched, by client id.", readings.client_bytes
    ),
    Family(
        "loop_delay_seconds", HISTOGRAM, "Scheduling delay of the node's event loop.", lambda r: r.pulse.loop_delay_s
    ),
    Family("zookeeper_seconds", HISTOGRAM, "Latency of ZooKeeper reads.", lambda r: r.pulse.zookeeper_s),
    Family("received_bytes_total", COUNTER, "Bytes read from connections.", lambda r: r.node.server.received_bytes),
    Family("sent_bytes_total", COUNTER, "Bytes written to connections.", lambda r: r.node.server.sent_bytes),
    Family("throttled_requests_total", COUNTER, "Requests throttled by a quota.", readings.throttled_requests),
    Family("throttled_seconds_total", COUNTER, "Sum of throttle times.", readings.throttled_s),
    Family(
        "topic_generation",
        GAUGE,
        "The published generation of a topic: the number of its resizes.",
        readings.generations,
    ),
    Family(
        "reshard_planned_total", COUNTER, "Resizes planned by this node as controller.", lambda r: r.resizes.planned
    ),
    Family(
        "reshard_published_total",
        COUNTER,
        "Resizes published by this node as controller.",
        lambda r: r.resizes.published,
    ),
    Family(
        "reshard_plan_age_seconds",
        GAUGE,
        "Age of the plan of a topic's current resize, since the last controller election at most.",
        readings.plan_ages,
    ),
    Family(
        "reshard_fence_seconds",
        HISTOGRAM,
        "How long the broker refused produce requests to a partition during a resize.",
        lambda r: r.fences.lengths_s,
    ),
    Family(
        "reshard_fenced_partitions",
        GAUGE,
        "Partitions that refuse produce requests during a resize.",
        lambda r: r.fences.closed,
    ),
    Family(
        "reshard_draining_partitions",
        GAUGE,
        "Retiring partitions that the broker leads.",
        lambda r: r.replicas.draining,
    ),
    Family(
        "reshard_refused_batches_total",
        COUNTER,
        "Batches refused because their generation is not the partition's.",
        readings.refused_batches,
    ),
)
