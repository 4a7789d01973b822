"""The audit query on a real cluster: findings, output, and restarts."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from anabranch.protocol import audit as wire
from anabranch.spark_jobs import audit, backfill, inputs, service, violations
from anabranch.spark_jobs.audit import Target
from anabranch.spark_jobs.scope import Scope
from anabranch.spark_jobs.service import AuditService, CannotAudit, claim
from anabranch.spark_jobs.verdict import KINDS, clean
from tests.spark_jobs import faults, histories
from tests.spark_jobs.histories import Audited
from tests.spark_jobs.live import DELIVERY, LiveCluster, deliveries


def audit_output(target: Target) -> list[str]:
    """Everything that an audit wrote down, sorted: violations and counts."""
    lines = [json.dumps(story, sort_keys=True) for story in violations.read(target.violations)]
    return sorted([*lines, *(tally.line() for tally in audit.tallies(target))])


@pytest.mark.spark
def test_stream_with_restarts_gives_same_verdict_as_pure_checks(
    spark: SparkSession, live: LiveCluster, tmp_path: Path
) -> None:
    """Members die, the topic is resized, every violation is planted; the query is stopped and continued."""
    history, late = faults.everything(random.Random(5))
    history, written = live.write_history("stream-audit", "stream-flights", history)
    written = faults.spoil(written, late)
    expected = histories.audit(written, history.stored)
    assert {violation.kind for violation in expected.violations} == set(KINDS)
    audits = AuditService(spark, live.servers, tmp_path)
    for begin, end in ((0, len(written) // 2), (len(written) // 2, len(written))):
        live.write_audit("stream-audit", written[begin:end])
        audits.begin("stream-audit", Scope("stream-flights"))
        verdict = audits.finish("stream-audit")
    target = Target(live.servers, "stream-audit", tmp_path / "stream-audit", Scope("stream-flights"))
    assert audit_output(target) == expected.lines
    assert verdict == expected.verdict
    records = inputs.batch(spark, live.servers, ["stream-audit", "stream-flights"])
    check_backfill(backfill.run(records, Scope("stream-flights")), expected)
    records.write.parquet(str(tmp_path / "copy"))
    check_backfill(backfill.run(spark.read.parquet(str(tmp_path / "copy")), Scope("stream-flights")), expected)


@pytest.mark.costly
@pytest.mark.spark
def test_slow_query_is_restarted_while_service_waits_for_commands(
    spark: SparkSession, live: LiveCluster, tmp_path: Path
) -> None:
    """No command arrives during the restart: `serve` blocks on its input."""
    history, written = live.write_history("served-audit", "served-flights", histories.make(random.Random(8)))
    live.write_audit("served-audit", written)
    batches: list[dict[str, Any]] = []
    judged = threading.Event()

    def fail_once(_: str, **facts: Any) -> None:
        batches.append(facts)
        if len(batches) == 1:
            raise RuntimeError(f"{service.TOO_SLOW} in time")
        judged.set()

    audits = AuditService(spark, live.servers, tmp_path, fail_once)

    def commands() -> Iterator[str]:
        yield json.dumps({"audit": "served-audit", "expect": "served-flights"})
        assert judged.wait(120), "the query was not restarted"

    service.serve(audits, commands())
    verdict = audits.finish("served-audit")
    assert (clean(verdict), verdict["delivered"]) == (True, len(history.stored))


def check_backfill(found: backfill.Backfill, expected: Audited) -> None:
    """A batch job has the same result."""
    assert sorted([*found.violations, *(tally.line() for tally in found.tallies)]) == expected.lines
    assert found.judgement == expected.verdict


@pytest.mark.costly
@pytest.mark.spark
def test_query_that_fails_within_a_batch_restarts_and_counts_it_once(
    spark: SparkSession, live: LiveCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine too busy for Spark's timeouts."""
    history, written = live.write_history("crash-audit", "crash-flights", histories.make(random.Random(6)))
    live.write_audit("crash-audit", written)
    monkeypatch.setattr(service, "STARTS_MAX", 3)
    reported: list[dict[str, Any]] = []

    def die_twice(_: str, **facts: Any) -> None:
        reported.append(facts)
        if len(reported) < 3:
            raise RuntimeError(f"{service.TOO_SLOW} in time")

    audits = AuditService(spark, live.servers, tmp_path, die_twice)
    running = audits.begin("crash-audit", Scope("crash-flights"))
    with pytest.raises(StreamingQueryException, match=service.TOO_SLOW):
        running.query.processAllAvailable()
    assert audits.active("crash-audit")
    verdict = audits.finish("crash-audit")
    assert [facts["batch"] for facts in reported] == [0, 0, 0], "the same batch ran three times"
    assert reported[0] == reported[1] == reported[2]
    assert running.starts == 3
    assert not audits._started_again(running, service.TOO_SLOW), "not for ever"
    assert clean(verdict)
    assert (verdict["delivered"], verdict["events"]) == (len(history.stored), len(history.handed))
    assert verdict["redelivered"] == len(history.handed) - len(history.stored) > 0
    counted = audit.read_ledger(running.target).total()
    assert sum(handed.records for handed in counted.key_epochs.values()) == len(history.handed)


@pytest.mark.spark
def test_topic_without_audit_events_is_an_error_of_one_line(
    spark: SparkSession, live: LiveCluster, tmp_path: Path
) -> None:
    topic = live.create("no-audit", 1)
    live.produce(topic, [(0, b"k", b"a flight")])
    audits = AuditService(spark, live.servers, tmp_path)
    running = audits.begin(topic, Scope())
    with pytest.raises(CannotAudit, match=r"^the audit of no-audit failed: DecodeError: not an audit event[^\n]*$"):
        audits.finish(topic)
    assert running.starts == 1, "it would fail again"


def test_events_of_version_1_are_audited() -> None:
    """Under the record's own key, without a number: topics from before event runs."""
    values = [
        value for _, _, value in deliveries(b"a", [(0, 0, 0), (1, 0, 1), (1, 0, 5)], of=replace(DELIVERY, topic="t"))
    ]
    assert all(value[0] == wire.VERSION for value in values)
    assert histories.audit([(0, value) for value in values]).verdict["repeated"] == 1


def test_directory_belongs_to_one_pair_of_topics(live: LiveCluster, tmp_path: Path) -> None:
    topic, expect, other = (live.create(f"claim-{number}", 1) for number in range(3))
    target = Target(live.servers, topic, tmp_path, Scope(expect))
    claim(target)
    claim(target)
    with pytest.raises(CannotAudit, match="another directory"):
        claim(replace(target, scope=Scope()))
    with pytest.raises(CannotAudit, match="another directory"):
        claim(replace(target, scope=Scope(other)))
    with pytest.raises(CannotAudit, match="other --expect, --group, --forget-after or"):
        claim(replace(target, scope=Scope(expect, ("first", "second"))))


@pytest.mark.spark
def test_batch_job_compares_stored_records_with_successive_groups(spark: SparkSession, live: LiveCluster) -> None:
    """A bucket without events of the second group reports nothing."""
    topic, expect = live.create("groups-audit", 2), live.create("groups", 1)
    keys = [b"a", b"b"]
    assert len({wire.bucket_of(wire.key_hash(key, 0)) for key in keys}) == 2
    offsets = {key: live.produce_marked(expect, [(0, key, number) for number in range(3)]) for key in keys}
    for incarnation, (group, its_keys) in enumerate([("first", keys), ("second", keys[:1])]):
        by = replace(DELIVERY, topic=expect, group=group, incarnation=incarnation, fingerprint=wire.fingerprint(b""))
        for key in its_keys:
            live.produce(topic, deliveries(key, [(number, 0, at) for number, at in enumerate(offsets[key])], of=by))
    found = backfill.run(inputs.batch(spark, live.servers, [topic, expect]), Scope(expect)).judgement
    assert (found["delivered"], found["lost"], found["wrong_payload"]) == (9, 3, 0)
