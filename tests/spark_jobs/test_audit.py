"""The audit query on a real cluster: what it finds, what it writes down, and that stopping it changes neither."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from protocol import audit as wire
from protocol.errors import DecodeError
from spark_jobs import audit
from spark_jobs.audit import BUCKETS, Target
from spark_jobs.checks import LOST, OUT_OF_ORDER, REPEATED
from spark_jobs.service import AuditService, CannotAudit, claim
from tests.spark_jobs.live import DELIVERY, LiveCluster, deliveries


def stories(target: Target) -> list[dict[str, Any]]:
    """Everything written down about violations."""
    files = sorted(target.violations.glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_events_are_taken_apart_in_columns() -> None:
    events = [
        replace(DELIVERY, sequence=(1 << 64) - 2, producer=1 << 63, offset=(1 << 63) - 1, generation=-1, incarnation=9),
        replace(DELIVERY, sequence=1, partition=7, group="andere", member="läufer", topic="u", time_ms=-1),
    ]
    found = list(audit._events([b"k", None], [wire.encode_delivery(one) for one in events]))
    for event, delivery in zip(found, events, strict=True):
        for name in set(event._fields) - {"key"}:
            assert getattr(event, name) == getattr(delivery, name), name
    assert [event.key for event in found] == [b"k", b""]


@pytest.mark.parametrize("value", [b"", b"a flight", b"\x02" + wire.encode_delivery(DELIVERY)[1:]])
def test_what_is_no_event_is_refused(value: bytes) -> None:
    with pytest.raises(DecodeError, match="not an audit event"):
        list(audit._events([b"k"], [value]))


@pytest.mark.spark
def test_a_clean_audit_stays_the_same_when_it_is_stopped_and_continued(
    spark: SparkSession, live: LiveCluster, tmp_path: Path
) -> None:
    topic, expect = live.create("clean-audit", 2), live.create("flights", 2)
    keys = [b"a%d" % number for number in range(40)]
    live.produce_marked(expect, [(0, key, sequence) for sequence in range(6) for key in keys])
    first = [record for key in keys for record in deliveries(key, [(one, 0, one) for one in range(3)])]
    # After the restart: a stretch that was delivered before, then the rest, elsewhere.
    second = [record for key in keys for record in deliveries(key, [(2, 0, 2), (3, 0, 3), (4, 1, 0), (5, 1, 1)])]
    live.produce(topic, first)
    service = AuditService(spark, live.servers, tmp_path)
    service.begin(topic, expect)
    partial = service.finish(topic)
    assert partial == {
        "delivered": 120,
        "keys": 40,
        "events": 120,
        "redelivered": 0,
        "out_of_order": 0,
        "lost": 120,
        "repeated": 0,
        "unnumbered": 0,
    }
    live.produce(topic, second)
    service.begin(topic, expect)
    assert service.finish(topic) == {
        **partial,
        "delivered": 240,
        "events": 280,
        "redelivered": 40,
        "lost": 0,
    }
    target = Target(live.servers, topic, tmp_path / topic, expect)
    assert len(json.loads(target.summary.read_text())) == BUCKETS
    assert stories(target) == [], "what was lost for now has been delivered"


@pytest.mark.spark
def test_every_violation_is_found_and_told_whole(spark: SparkSession, live: LiveCluster, tmp_path: Path) -> None:
    topic, expect = live.create("bad-audit", 2), live.create("bad-flights", 2)
    of = replace(DELIVERY, topic=expect)
    live.produce_marked(
        expect,
        [(0, key, sequence) for key in (b"late", b"twice", b"skipped", b"cut", b"unseen") for sequence in range(4)],
    )
    histories = {
        b"late": [(0, 0, 0), (2, 1, 0), (1, 0, 1), (3, 1, 1)],
        b"twice": [(0, 0, 2), (1, 0, 3), (1, 0, 9), (2, 0, 10), (3, 0, 11)],
        b"skipped": [(0, 0, 4), (2, 0, 6), (3, 0, 7)],
        b"cut": [(0, 1, 20), (1, 1, 21)],
    }
    records = [record for key, places in histories.items() for record in deliveries(key, places, of=of)]
    live.produce(topic, [*records, *deliveries(b"blank", [(5, 0, 0)], of=replace(of, producer=wire.NO_PRODUCER))])
    service = AuditService(spark, live.servers, tmp_path)
    service.begin(topic, expect)
    verdict = service.finish(topic)
    assert verdict == {
        "delivered": 13,
        "keys": 4,
        "events": 15,
        "redelivered": 0,
        "out_of_order": 1,
        "lost": 1 + 2 + 4,
        "repeated": 1,
        "unnumbered": 1,
    }
    told = {(story["kind"], story["key"]): story for story in stories(Target(live.servers, topic, tmp_path / topic))}
    assert set(told) == {
        (OUT_OF_ORDER, "late"),
        (REPEATED, "twice"),
        (LOST, "skipped"),
        (LOST, "cut"),
        (LOST, "unseen"),
    }
    late = told[OUT_OF_ORDER, "late"]
    assert (late["group"], late["delivered"]["sequence"], late["delivered"]["partition"]) == ("readers", 1, 0)
    assert (late["after"]["sequence"], late["after"]["partition"], late["after"]["offset"]) == (2, 1, 0)
    assert late["delivered"]["topic"] == expect
    assert late["delivered"]["member"] == "reader-1"
    assert told[LOST, "skipped"]["sequences"] == [[1, 1]]
    assert told[LOST, "cut"]["sequences"] == [[2, 3]]
    assert told[LOST, "cut"]["newest"]["offset"] == 21
    assert (told[LOST, "unseen"]["sequences"], told[LOST, "unseen"]["newest"]) == ([[0, 3]], None)


@pytest.mark.spark
def test_a_batch_that_ran_without_being_committed_counts_once(
    spark: SparkSession, live: LiveCluster, tmp_path: Path
) -> None:
    topic = live.create("crash-audit", 2)
    live.produce(topic, deliveries(b"a", [(0, 0, 0), (1, 0, 1), (1, 0, 5)]))
    target = Target(live.servers, topic, tmp_path)
    batches: list[int] = []

    def die(facts: dict[str, Any]) -> None:
        batches.append(facts["batch"])
        raise RuntimeError("the process died here")

    query = audit.start(spark, target, die)
    with pytest.raises(Exception, match="the process died here"):
        query.processAllAvailable()
    before = audit.summary(target)
    query = audit.start(spark, target, lambda facts: batches.append(facts["batch"]))
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert batches == [0, 0], "the same batch ran twice"
    assert audit.summary(target) == before
    assert (before["events"], before["delivered"], before["repeated"]) == (3, 2, 1)
    assert [story["kind"] for story in stories(target)] == [REPEATED]


@pytest.mark.spark
def test_a_topic_that_is_no_audit_topic_ends_in_one_line(
    spark: SparkSession, live: LiveCluster, tmp_path: Path
) -> None:
    topic = live.create("no-audit", 1)
    live.produce(topic, [(0, b"k", b"a flight")])
    service = AuditService(spark, live.servers, tmp_path)
    service.begin(topic, None)
    with pytest.raises(CannotAudit, match=r"^the audit of no-audit failed: DecodeError: not an audit event[^\n]*$"):
        service.finish(topic)


def test_a_directory_belongs_to_one_pair_of_topics(live: LiveCluster, tmp_path: Path) -> None:
    topic, expect, other = (live.create(f"claim-{number}", 1) for number in range(3))
    target = Target(live.servers, topic, tmp_path, expect)
    claim(target)
    claim(target)
    with pytest.raises(CannotAudit, match="another directory"):
        claim(replace(target, expect=None))
    with pytest.raises(CannotAudit, match="another directory"):
        claim(replace(target, expect=other))
