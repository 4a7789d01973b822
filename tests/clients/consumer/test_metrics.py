"""Metrics of a consumer on a cluster: lag, gates and hand-offs during a split."""

from __future__ import annotations

import dataclasses

from anabranch import Consumer, ConsumerMetrics, Producer, TopicPartition
from tests.clients.consumer.groups import TOPIC, cluster_and_admin, make_topic, resize, send

BEFORE = 30
AFTER = 20


def test_metrics_are_zero_before_start() -> None:
    assert Consumer("t").metrics() == ConsumerMetrics()


async def test_gates_and_lag_of_split_topic() -> None:
    """The application commits late, so the child's gate stays closed during the test."""
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1)
        async with Producer(cluster.bootstrap_servers) as producer:
            await send(producer, admin, BEFORE)
            await resize(admin, 2)
            await send(producer, admin, AFTER)
            sent = producer.metrics()
        assert (sent.records_sent, sent.records_acknowledged, sent.records_failed) == (
            BEFORE + AFTER,
            BEFORE + AFTER,
            0,
        )
        consumer = Consumer(
            TOPIC,
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=20,
        )
        async with consumer:
            delivered = 0
            while delivered < BEFORE or not consumer.gates():
                delivered += sum(map(len, (await consumer.getmany(timeout_ms=50)).values()))
            metrics = consumer.metrics()
            child = TopicPartition(TOPIC, 1)
            behind = consumer.highwater(child) - consumer.position(child)
            assert behind > 0
            assert (metrics.records_delivered, metrics.partitions, metrics.rebalances) == (delivered, 2, 1)
            assert (metrics.closed_gates, metrics.gated_partitions, metrics.gated_lag_records) == (1, 1, behind)
            assert metrics.lag_records == BEFORE + AFTER - delivered
            assert (metrics.fetch_lag_records, metrics.handoffs) == (0, 0)
            commits = metrics.commits
            await consumer.commit()
            while delivered < BEFORE + AFTER:
                delivered += sum(map(len, (await consumer.getmany(timeout_ms=50)).values()))
            (opening,) = consumer.gate_openings()
            closed_ms = 1000 * (opening.opened_at_s - opening.closed_at_s)
            metrics = consumer.metrics()
            assert metrics.commits > commits
            assert dataclasses.replace(metrics, commits=0) == ConsumerMetrics(
                records_delivered=BEFORE + AFTER,
                partitions=2,
                rebalances=1,
                handoffs=1,
                last_handoff_ms=closed_ms,
                longest_handoff_ms=closed_ms,
            )
        assert consumer.metrics().records_delivered == BEFORE + AFTER, "also after the end"
