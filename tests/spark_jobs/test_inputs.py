"""Spark's Kafka connector instead of the `anabranch` source: equal columns and verdict, or one error line.

The connector is no dependency of ours. Point ANABRANCH_SPARK_KAFKA_JARS at a directory with its files
(spark-sql-kafka-0-10, spark-token-provider-kafka-0-10, kafka-clients, commons-pool2) to run what needs it.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from anabranch.cli.audit import command
from anabranch.spark_jobs import backfill, inputs
from anabranch.spark_jobs.scope import Scope
from anabranch.spark_jobs.service import AuditService, CannotAudit
from anabranch.spark_jobs.source import FORMAT
from anabranch.spark_jobs.verdict import clean
from tests.spark_jobs import faults, histories, kills
from tests.spark_jobs.conftest import kafka_jars
from tests.spark_jobs.happenings import expire
from tests.spark_jobs.live import DELIVERY, LiveCluster, deliveries

needs_connector = pytest.mark.skipif(
    not kafka_jars(), reason="NO KAFKA CONNECTOR: ANABRANCH_SPARK_KAFKA_JARS names no directory with Spark's connector"
)


@needs_connector
@pytest.mark.spark
def test_spark_kafka_connector_gives_same_verdict(spark: SparkSession, live: LiveCluster, tmp_path: Path) -> None:
    """Stopped and continued, as a batch job, and record by record."""
    history, late = faults.everything(random.Random(8))
    history, written = live.write_history("connector-audit", "connector-flights", history)
    written = faults.spoil(written, late)
    expected = histories.audit(written, history.stored)
    service = AuditService(spark, live.servers, tmp_path, source=inputs.KAFKA)
    for begin, end in ((0, len(written) // 2), (len(written) // 2, len(written))):
        live.write_audit("connector-audit", written[begin:end])
        service.begin("connector-audit", Scope("connector-flights"))
        verdict = service.finish("connector-audit")
    assert verdict == expected.verdict
    target = service.target("connector-audit", Scope("connector-flights"))
    together = histories.counted_beside(written, history)
    assert kills.differences(target, kills.Expected.of(expected, together)) == []
    topics = ["connector-audit", "connector-flights"]
    finished = backfill.run(inputs.batch(spark, live.servers, topics, source=inputs.KAFKA), Scope("connector-flights"))
    assert finished.judgement == expected.verdict
    assert sorted([*finished.violations, *(tally.line() for tally in finished.tallies)]) == expected.lines
    assert finished.beside.as_json() == together.as_json()
    frames = [inputs.batch(spark, live.servers, topics, source=source) for source in inputs.SOURCES]
    ours, theirs = (sorted(frame.collect(), key=lambda row: (row.topic, row.partition, row.offset)) for frame in frames)
    assert ours == theirs


@pytest.mark.spark
@pytest.mark.parametrize("source", [FORMAT, pytest.param(inputs.KAFKA, marks=needs_connector)])
def test_audit_continues_without_expired_events_if_allowed(
    spark: SparkSession, live: LiveCluster, tmp_path: Path, source: str
) -> None:
    topic, expect = live.create(f"expiring-{source}-audit", 2), live.create(f"expiring-{source}", 1)
    lenient = AuditService(spark, live.servers, tmp_path, source=source, fail_on_data_loss=False)
    of = replace(DELIVERY, topic=expect)
    for begin, end in ((0, 2), (2, 4)):
        live.produce_marked(expect, [(0, b"k", number) for number in range(begin, end)])
        live.produce(topic, deliveries(b"k", [(number, 0, number) for number in range(begin, end)], of=of))
        if begin:
            expire(live, expect, 0, 3)
        lenient.begin(topic, Scope(expect))
        verdict = lenient.finish(topic)
    assert clean(verdict)
    assert verdict["delivered"] == 4


@needs_connector
def test_named_connector_is_the_tested_one() -> None:
    _, name, version = inputs.CONNECTOR.split(":")
    assert [Path(jar).name for jar in kafka_jars() if name in jar] == [f"{name}-{version}.jar"]


def test_help_names_the_available_connector() -> None:
    assert command.epilog is not None and f"spark.jars.packages={inputs.CONNECTOR}" in command.epilog


@pytest.mark.skipif(bool(kafka_jars()), reason="the connector is there")
@pytest.mark.spark
def test_missing_connector_is_named(spark: SparkSession, live: LiveCluster, tmp_path: Path) -> None:
    topic = live.create("no-connector", 1)
    with pytest.raises(
        CannotAudit, match=r"connector is not installed: --conf spark\.jars\.packages=org\.apache\.spark"
    ):
        AuditService(spark, live.servers, tmp_path, source=inputs.KAFKA).begin(topic, Scope())
