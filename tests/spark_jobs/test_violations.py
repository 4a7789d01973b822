"""Violations as files and as records of a topic."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from anabranch.spark_jobs import verdict, violations
from anabranch.spark_jobs.range_reader import RangeReader
from anabranch.spark_jobs.ranges import OffsetRange
from anabranch.spark_jobs.reader import EARLIEST, LATEST, TopicReader
from anabranch.spark_jobs.verdict import Event, Violation
from anabranch.spark_jobs.violations import Violations, batch_name
from anabranch.spark_jobs.writer import TopicWriter
from tests.spark_jobs.live import LiveCluster

EVENT = Event("readers", "flights", 1 << 63, b"N123", 7, 2, 900, 1, 1_700_000_000_000, 99, "r1", 1 << 63, 4)
FOUND = [
    Violation.of(verdict.OUT_OF_ORDER, EVENT, before=EVENT._replace(sequence=8, partition=0, offset=12)),
    Violation.of(verdict.REPEATED, EVENT._replace(key=b"\xff\n"), before=None, after=EVENT),
    Violation.of(verdict.WRONG_PAYLOAD, EVENT._replace(key=None), before=None, stored=5),
    Violation(verdict.LOST, "readers", "flights", 7, b"N9", before=EVENT, sequences=((1, 3), (9, 9))),
    Violation(verdict.UNAUDITED, "readers", "flights", 0, None, sequences=((4, 4),), member="r2"),
    Violation(verdict.LOST, "readers", "flights", 0, None, partition=3, offset=1 << 40),
]
LINES = [one.line() for one in FOUND]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LiveCluster]:
    with LiveCluster(1) as live:
        yield live


def test_every_kind_of_violation_survives_the_round_trip(tmp_path: Path) -> None:
    outputs = Violations(tmp_path)
    outputs.take(batch_name(0), LINES[:4], 0)
    outputs.take(batch_name(10), LINES[4:], 0)
    assert [json.dumps(story, sort_keys=True) for story in violations.read(tmp_path)] == LINES
    assert violations.count(tmp_path) == len(LINES)


def test_columns_are_typed_and_equal_in_all_files(tmp_path: Path) -> None:
    outputs = Violations(tmp_path)
    for number, line in enumerate(LINES):
        outputs.take(batch_name(number), [line], 0)
    table = pq.read_table(tmp_path)
    assert table.schema.remove_metadata() == violations.SCHEMA
    first = table.slice(0, 1).to_pylist()[0]
    assert (first["kind"], first["key"], first["producer"]) == ("out_of_order", "N123", 1 << 63)
    assert (first["delivered"]["sequence"], first["before"]["sequence"], first["next"]) == (7, 8, None)
    assert first["delivered"]["incarnation"] == 1 << 63
    assert table["sequences"].to_pylist()[3] == [{"first": 1, "last": 3}, {"first": 9, "last": 9}]
    assert table["offset"].to_pylist()[5] == 1 << 40


def test_repeated_batch_replaces_its_file(tmp_path: Path) -> None:
    outputs = Violations(tmp_path)
    outputs.take("lost", LINES, 0)
    outputs.take("lost", LINES[:1], 0)
    assert violations.count(tmp_path) == 1
    outputs.take("lost", [], 0)
    assert list(tmp_path.iterdir()) == []


def test_listener_is_called_for_a_limited_number_of_violations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(violations, "NAMED_MAX", 2)
    received: list[dict[str, Any]] = []
    Violations(tmp_path, listeners=[received.append]).take(batch_name(0), LINES, 0)
    assert [story["kind"] for story in received] == ["out_of_order", "repeated"]
    assert violations.count(tmp_path) == len(LINES)


def test_violations_topic_has_keys_that_identify_repetitions(cluster: LiveCluster, tmp_path: Path) -> None:
    topic = cluster.create("violations", 3)
    writer = TopicWriter(cluster.servers, topic)
    outputs = Violations(tmp_path, topic=writer)
    try:
        outputs.take(batch_name(4), LINES, 1_700_000_000_000)
        outputs.take(batch_name(4), LINES, 1_700_000_000_000)
    finally:
        writer.close()
    with TopicReader(cluster.servers) as cluster_reader:
        begin, end = cluster_reader.offsets(topic, EARLIEST), cluster_reader.offsets(topic, LATEST)
    with RangeReader(cluster.servers, {}) as reader:
        stored = [
            (record.key(), record.value(), record.timestamp()[1])
            for index in begin
            for batch in reader.read(OffsetRange(topic, index, begin[index], end[index]))
            for record in batch
        ]
    assert len(stored) == 2 * len(LINES)
    assert {key: value.decode() for key, value, _ in stored if key and value} == {
        f"batch-000004/{place}".encode(): line for place, line in enumerate(LINES)
    }
    assert {timestamp for _, _, timestamp in stored} == {1_700_000_000_000}


def test_many_violations_are_sent_in_several_batches(cluster: LiveCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.spark_jobs.writer.BATCH_BYTES", 2000)
    topic = cluster.create("many-violations", 1)
    writer = TopicWriter(cluster.servers, topic)
    try:
        writer.write([(b"%d" % number, b"x" * 300) for number in range(50)], 1)
        assert writer._cluster.offsets(topic, LATEST) == {0: 50}
    finally:
        writer.close()
