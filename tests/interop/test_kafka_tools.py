"""Kafka's dump tool reads a log's files.

Needs Kafka's jars, which are not part of this project: point ANABRANCH_KAFKA_JARS at a directory that has
kafka_2.13-3.9.0.jar and all that it depends on, for example one that Maven has filled with

    mvn dependency:copy-dependencies -DoutputDirectory=...        # of a project that depends on kafka_2.13, and
                                                                  # for other tests on kafka-tools, kafka-streams
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from anabranch.broker.coordinators.transactions.transaction_journal import record_of
from anabranch.broker.coordinators.transactions.transactional_id import Transaction
from anabranch.broker.storage.cleaner import Cleaning, cleanable_part
from anabranch.broker.storage.log import LogSettings, PartitionLog
from anabranch.broker.storage.log_append import append_as_leader
from anabranch.broker.storage.os_files import OsFiles
from anabranch.protocol.records.batch import iter_batches
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.records.control import build_end_transaction
from anabranch.protocol.records.record import iter_records
from anabranch.spark_jobs import java

pytestmark = pytest.mark.kafka_jars

NOW_MS = 1_700_000_000_000
VARIABLE = "ANABRANCH_KAFKA_JARS"
COMPLAINTS = re.compile(
    r"mismatch|not valid|invalid|corrupt|exception|error|non-consecutive|out of order", re.IGNORECASE
)


@pytest.fixture(scope="module")
def jars() -> Path:
    """The directory of Kafka's jars; without them the test is skipped loudly."""
    given = os.environ.get(VARIABLE, "")
    if not given or not list(Path(given).glob("kafka_2.13-*.jar")) or java.why_missing() is not None:
        pytest.skip(f"NOT COMPARED WITH KAFKA: {VARIABLE}={given!r} has no kafka_2.13 jar, or there is no Java")
    return Path(given)


def dump(jars: Path, paths: list[Path], *options: str, may_complain: str = "(?i)log4j|slf4j") -> str:
    """What DumpLogSegments prints; a complaint of any kind fails the test."""
    command = [
        java.find().command,
        "-Xshare:auto",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        f"{jars}/*",
        "kafka.tools.DumpLogSegments",
    ]
    files = ",".join(str(path) for path in paths)
    ran = subprocess.run([*command, *options, "--files", files], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert not COMPLAINTS.search(without_flags(ran.stdout)), ran.stdout
    assert not [line for line in ran.stderr.splitlines() if not re.search(may_complain, line)]
    return ran.stdout


def without_flags(text: str) -> str:
    """`isvalid: true` means no flags."""
    return text.replace("isvalid: true", "")


def written(files: OsFiles) -> PartitionLog:
    """Every kind of batch: codecs, producers, transactions that commit and abort, tombstones, epochs, segments."""
    settings = LogSettings(
        segment_bytes=4000, index_interval_bytes=300, cleanup_policy="compact", delete_retention_ms=1000
    )
    log = PartitionLog.open(files, "t-0", settings, NOW_MS)
    for number in range(120):
        codec = ("none", "gzip", "snappy", "lz4", "zstd")[number % 5]
        builder = BatchBuilder(codec)
        for key in range(1 + number % 4):
            value = None if number % 9 == 0 else b"value-%d" % number
            builder.append(b"key-%d" % key, value, (("number", b"%d" % number),), NOW_MS + number)
        producer_id = 1 + number % 3
        transactional = producer_id == 3
        sequence = sum(1 + earlier % 4 for earlier in range(number) if 1 + earlier % 3 == producer_id)
        batch = builder.build(producer_id, 0, sequence, transactional)
        append_as_leader(log, batch, leader_epoch=number // 40, now_ms=NOW_MS)
        if transactional and number % 2:
            marker = build_end_transaction(
                commit=number % 4 == 1,
                producer_id=3,
                producer_epoch=0,
                coordinator_epoch=2,
                timestamp_ms=NOW_MS + number,
            )
            append_as_leader(log, marker, leader_epoch=number // 40, now_ms=NOW_MS, origin="coordinator")
    return log


def offsets_of(log: PartitionLog) -> list[int]:
    found, offset = [], 0
    while data := log.read(offset, 1 << 20):
        for position, header in iter_batches(data):
            found += [record.offset for record in iter_records(data, position)]
            offset = header.next_offset
    return found


@pytest.mark.parametrize("compacted", [False, True])
def test_kafka_reads_segments_indexes_and_snapshots(tmp_path: Path, jars: Path, compacted: bool) -> None:
    files = OsFiles(tmp_path)
    log = written(files)
    if compacted:
        for pass_ in range(3):
            log.cleaned_to = 0
            cleaning = Cleaning(files, log, cleanable_part(log, log.log_end_offset, NOW_MS), NOW_MS + 600 * pass_)
            while cleaning.step():
                pass
    wanted, aborted = offsets_of(log), list(log.producers.aborted)
    producers = {entry.producer_id: entry for entry in log.producers.entries}
    log.close()
    files.close()
    found = {suffix: sorted((tmp_path / "t-0").glob(f"*.{suffix}")) for suffix in ("log", "snapshot", "txnindex")}
    gaps = "(?i)log4j|slf4j|^Non-consecutive offsets in|^  \\d+ is followed by" if compacted else "(?i)log4j|slf4j"
    batches = dump(jars, found["log"], "--deep-iteration", "--print-data-log", may_complain=gaps)
    assert [int(one) for one in re.findall(r"^\| offset: (\d+)", batches, re.MULTILINE)] == wanted
    assert set(re.findall(r"compresscodec: (\w+)", batches)) == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert ("deleteHorizonMs: OptionalLong[17" in batches) == compacted
    for kind in ("index", "timeindex"):
        paths = sorted((tmp_path / "t-0").glob(f"*.{kind}"))
        assert dump(jars, paths, "--index-sanity-check").count("passed sanity check") == len(paths)
        entries = dump(jars, paths)
        assert entries.count("offset: ") > len(paths)
    assert aborted
    index = dump(jars, found["txnindex"])
    shown = re.findall(r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", index)
    assert [tuple(map(int, one)) for one in shown] == [tuple(one) for one in aborted]
    snapshot = dump(jars, found["snapshot"][-1:])
    rows = re.findall(r"producerId: (\d+) producerEpoch: (\d+).*?lastSequence: (-?\d+).*?lastOffset: (-?\d+)", snapshot)
    assert len(rows) == len(producers) == 3
    for producer_id, epoch, sequence, offset in (map(int, row) for row in rows):
        entry = producers[producer_id]
        assert (epoch, sequence, offset) == (entry.epoch, entry.last_sequence, entry.batches[-1].last_offset)


def test_kafka_decodes_transaction_states(jars: Path, tmp_path: Path) -> None:
    """The records of `__transaction_state`, state by state, and a tombstone."""
    log = PartitionLog.open(OsFiles(str(tmp_path)), "__transaction_state-0", LogSettings(), NOW_MS)
    one = Transaction(transactional_id="tx", producer_id=4711, timeout_ms=60_000, last_update_ms=NOW_MS)
    moves = [one.prepare_next_epoch(timeout_ms=45_000, expected_epoch=None, now_ms=NOW_MS)]
    one.complete(moves[-1])
    moves.append(one.prepare_add([("t", 1), ("t", 0), ("__consumer_offsets", 7)], now_ms=NOW_MS + 1))
    one.complete(moves[-1])
    moves.append(one.prepare_end(commit=True, now_ms=NOW_MS + 2))
    one.complete(moves[-1])
    one.partitions.clear()
    moves.append(one.prepare_complete(now_ms=NOW_MS + 3))
    records: list[tuple[bytes, bytes | None]] = [record_of("tx", move) for move in moves]
    for key, value in [*records, (records[0][0], None)]:
        builder = BatchBuilder()
        builder.append(key, value, timestamp_ms=NOW_MS)
        append_as_leader(log, builder.build(), leader_epoch=0, now_ms=NOW_MS, origin="coordinator")
    log.close()
    shown = dump(jars, sorted(tmp_path.glob("*/*.log")), "--print-data-log", "--transaction-log-decoder")
    payloads = re.findall(r"key: (\S+) payload: (.*)", shown)
    assert [key for key, _ in payloads] == ["transaction_metadata::transactionalId=tx"] * 5
    partitions = {"[]", "[__consumer_offsets-7,t-0,t-1]"}
    for (_, text), state, update_ms in zip(
        payloads, ("Empty", "Ongoing", "PrepareCommit", "CompleteCommit"), range(NOW_MS, NOW_MS + 4), strict=False
    ):
        found = re.fullmatch(
            r"producerId:4711,producerEpoch:0,state=(\w+),partitions=(\[.*\]),txnLastUpdateTimestamp=(\d+),"
            r"txnTimeoutMs=45000",
            text.strip(),
        )
        assert found is not None, text
        assert (found[1], int(found[3])) == (state, update_ms)
        assert "[" + ",".join(sorted(found[2].strip("[]").replace(" ", "").split(","))) + "]" in partitions
        assert (found[2] == "[]") is (state in ("Empty", "CompleteCommit"))
    assert payloads[-1][1].strip() == "<DELETE>"
