"""Aborted records need no delivery; an option sets which records count as stored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from anabranch.protocol import audit as wire
from anabranch.spark_jobs import backfill, inputs
from anabranch.spark_jobs.scope import READ_UNCOMMITTED, Scope
from anabranch.spark_jobs.service import AuditService, CannotAudit
from anabranch.spark_jobs.source import FORMAT
from anabranch.spark_jobs.verdict import clean
from tests.spark_jobs.happenings import begin_transaction
from tests.spark_jobs.live import DELIVERY, LiveCluster, deliveries
from tests.spark_jobs.test_inputs import needs_connector


@pytest.mark.spark
@pytest.mark.parametrize("source", [FORMAT, pytest.param(inputs.KAFKA, marks=needs_connector)])
def test_aborted_records_count_as_stored_for_read_uncommitted_groups_only(
    spark: SparkSession, live: LiveCluster, tmp_path: Path, source: str
) -> None:
    topic, expect = live.create(f"isolated-{source}-audit", 2), live.create(f"isolated-{source}", 1)
    committed = live.produce_marked(expect, [(0, b"k", 0)])
    begin_transaction(live, expect, [(0, b"k", b"given up"), (0, b"j", b"given up")])()
    committed += live.produce_marked(expect, [(0, b"k", 1)])
    assert committed == [0, 4]
    of = replace(DELIVERY, topic=expect, fingerprint=wire.fingerprint(b""))
    live.produce(topic, deliveries(b"k", [(number, 0, offset) for number, offset in enumerate(committed)], of=of))
    service = AuditService(spark, live.servers, tmp_path, source=source)
    service.begin(topic, Scope(expect))
    verdict = service.finish(topic)
    assert clean(verdict)
    assert verdict["delivered"] == 2
    with pytest.raises(CannotAudit, match="--isolation-level"):
        service.begin(topic, Scope(expect, isolation_level=READ_UNCOMMITTED))
    assert (
        sorted(row.offset for row in inputs.batch(spark, live.servers, [expect], source=source).collect()) == committed
    )
    everything = Scope(expect, isolation_level=READ_UNCOMMITTED)
    found = inputs.batch(
        spark, live.servers, [topic, expect], source=source, isolation_level=everything.isolation_level
    )
    assert backfill.run(found, everything).judgement["lost"] == 2
