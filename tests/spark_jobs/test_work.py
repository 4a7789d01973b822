"""`anabranch audit` with a Spark session: stream, batch job and replay find the same."""

from __future__ import annotations

import contextlib
import io
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from anabranch.audit import jobs, report, results
from anabranch.audit.audit_options import AuditOptions
from anabranch.audit.findings import Findings
from anabranch.cli import audit as command
from anabranch.spark_jobs import audit, session, verdict, violations
from anabranch.spark_jobs.reader import EARLIEST, LATEST, TopicReader
from anabranch.spark_jobs.scope import Scope
from anabranch.spark_jobs.service import CannotAudit
from tests.spark_jobs.live import DELIVERY, LiveCluster, deliveries

pytestmark = [pytest.mark.spark]

WISH = AuditOptions(
    bootstrap_servers="",
    topic=None,
    expect=None,
    out=Path(),
    follow=False,
    serve=False,
    backfill=False,
    copy=None,
    replay=None,
    master="local[2]",
    conf={},
    violations_to=None,
    events=None,
    metrics_port=None,
    metrics_host="127.0.0.1",
    package=None,
)
GENERATION_MS = 60_000


@pytest.mark.parametrize(("given", "hours"), [(None, 24), (48, 48)])
def test_given_options_precede_those_of_the_copy(given: int | None, hours: int, tmp_path: Path) -> None:
    facts = {"topic": "t", "expect": "e", "groups": ["g"], "forget_after": 24}
    (tmp_path / jobs.COPY_FACTS).write_text(json.dumps(facts))
    replay = jobs.read_copy(replace(WISH, replay=tmp_path, expect="other", forget_after=given))
    assert replay.scope == Scope("other", ("g",), hours * 3_600_000)


def resized_and_read(live: LiveCluster) -> tuple[str, str]:
    """An audit topic, and the audited one, which grew from two partitions to four; one key was read out of order."""
    topic, expect = live.create("work-audit", 2), live.create("work", 2)
    live.grow(expect, 4)
    keys = [b"a%d" % number for number in range(6)]
    places = {(key, n): (n // 3 * 2, n % 3 * 6 + at) for n in range(6) for at, key in enumerate(keys)}
    live.produce_marked(expect, [(places[key, n][0], key, n) for n in range(6) for key in keys])
    before = replace(DELIVERY, topic=expect, generation=0)
    after = replace(before, generation=1, time_ms=before.time_ms + GENERATION_MS, incarnation=2, member="reader-2")
    records = []
    for key, sequences in {**dict.fromkeys(keys, range(6)), b"a0": (0, 1, 3, 4, 5, 2), b"a1": range(5)}.items():
        for n in sequences:
            records += deliveries(key, [(n, *places[key, n])], of=before if n < 3 else after)
    live.produce(topic, records)
    return topic, expect


def comparable(findings: Findings) -> dict[str, Any]:
    """All that does not depend on how it was found."""
    stories = sorted(map(repr, zip(findings.stories, findings.paths, strict=True)))
    return {**report.as_json(findings), "stories": stories}


def test_stream_batch_job_and_copy_find_the_same_violations(
    spark: SparkSession, live: LiveCluster, tmp_path: Path
) -> None:
    topic, expect = resized_and_read(live)
    into = live.create("work-violations", 2)
    (tmp_path / "events").write_text('{"t_ms": 1700000030000, "kind": "kill", "text": "killed", "label": "broker 1"}\n')
    console = Console(width=160, file=io.StringIO())
    options = replace(WISH, bootstrap_servers=live.servers, topic=topic, expect=expect, out=tmp_path / "out")
    options = replace(options, events=tmp_path / "events")
    streamed = jobs.run_stream(spark, replace(options, violations_to=into), console)
    assert (streamed.judgement["out_of_order"], streamed.judgement["lost"], streamed.found) == (1, 1, 2)
    assert streamed.judgement["delivered"] == 35
    ((group, lost_of, _, _, records),) = streamed.unread
    assert (group, lost_of, records) == ("readers", expect, 1)
    (line,) = streamed.causes
    assert line.startswith(f"1 record that group readers was not given: {expect}-")
    assert [one.records for one in streamed.progress] == [35 + 36]
    assert [(one.kind, str(one.target)) for one in streamed.hand_offs("readers", expect)] == [("split", "2@1")]
    path = next(way for story, way in zip(streamed.stories, streamed.paths, strict=True) if story["key"] == "a0")
    assert [(one["sequence"], one["partition"]) for one in path] == [(1, 0), (3, 2), (4, 2), (5, 2), (2, 0)]
    assert isinstance(console.file, io.StringIO)
    assert "key a0 (number 2)" in console.file.getvalue()
    with TopicReader(live.servers) as reader:
        begin, end = reader.offsets(into, EARLIEST), reader.offsets(into, LATEST)
        assert sum(end.values()) - sum(begin.values()) == 2

    batch = replace(options, backfill=True, copy=tmp_path / "copy")
    at_once = jobs.run_batch(spark, batch, console)
    assert comparable(at_once) == comparable(streamed)
    replay = jobs.read_copy(replace(WISH, replay=tmp_path / "copy", out=tmp_path / "out"))
    assert (replay.topic, replay.expect) == (topic, expect)
    assert comparable(jobs.run_batch(spark, replay, console)) == comparable(streamed)
    with pytest.raises(CannotAudit, match="no copy of an audit"):
        jobs.read_copy(replace(WISH, replay=tmp_path))

    for findings, directory in ((streamed, options.directory), (at_once, batch.directory)):
        assert jobs.conclude(findings, directory, console) == 1
        assert json.loads((directory / results.VERDICT).read_text())["verdict"] == dict(streamed.judgement)
        assert "broker 1" in (directory / results.REPORT).read_text()
        assert violations.count(directory / "violations") == 2


def test_exit_status_of_clean_stream_is_zero(
    spark: SparkSession,
    live: LiveCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The command without its own Spark start, which `tests.anabranch.cli.test_audit` has."""
    monkeypatch.setattr(session, "AuditSpark", lambda *_, **__: contextlib.nullcontext(spark))
    topic = live.create("good", 2)
    live.produce(topic, deliveries(b"k", [(0, 0, 0), (1, 0, 1)]))
    options = replace(WISH, bootstrap_servers=live.servers, topic=topic, out=tmp_path)
    assert command.run(options) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert any(line.startswith("│ out of order") and "0" in line for line in out.splitlines()), out
    assert json.loads((options.directory / results.VERDICT).read_text())["clean"] is True
    assert "Order audit" in (options.directory / results.REPORT).read_text()
    assert list((options.directory / "violations").glob("*")) == []


def test_following_stream_creates_its_mark_even_without_input(
    spark: SparkSession, live: LiveCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For health checks: absent while Spark starts, and removed with the audit."""
    options = replace(WISH, bootstrap_servers=live.servers, topic=live.create("quiet", 1), out=tmp_path, follow=True)
    mark = options.directory / results.FOLLOWING
    mark.parent.mkdir(parents=True)
    mark.touch()  # left by one that was killed
    seen: list[bool] = []

    class UntilFollowed(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            seen.append(mark.exists())
            return seen[-1] or super().wait(timeout)

    monkeypatch.setattr(jobs, "until_interrupted", lambda: contextlib.nullcontext(UntilFollowed()))
    jobs.run_stream(spark, options, Console(file=io.StringIO()))
    assert (seen[0], seen[-1], mark.exists()) == (False, True, False)


def test_without_deliveries_there_is_no_verdict(
    spark: SparkSession, live: LiveCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer without an audit must not pass CI; nor must Ctrl-C before any event."""
    monkeypatch.setattr(session, "AuditSpark", lambda *_, **__: contextlib.nullcontext(spark))
    stopped = threading.Event()
    stopped.set()
    monkeypatch.setattr(jobs, "until_interrupted", lambda: contextlib.nullcontext(stopped))
    options = replace(WISH, bootstrap_servers=live.servers, topic=live.create("empty", 1), out=tmp_path)
    with pytest.raises(command.CannotRun, match=r"^nothing was delivered: empty has no audit events") as refusal:
        command.run(replace(options, follow=True))
    assert refusal.value.exit_code == 2
    nothing = results.of_stream(audit.Target(live.servers, "empty", options.directory), verdict.judge((), keys=0))
    assert jobs.conclude(nothing, options.directory, Console(file=io.StringIO()), allow_empty=True) == 0


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_delivery_logs_of_other_clients_are_judged_like_an_audit_topic(spark: SparkSession, tmp_path: Path) -> None:
    """One violation of each kind that delivery logs can show; the rest is in order."""
    sent = [
        {"key": f"k{number % 10}", "sequence": number // 10, "partition": number % 10 % 3, "offset": number}
        for number in range(1000)
    ]
    handed = [dict(row) for row in sent]
    handed += handed[970:]  # read again from where it was committed
    twice = {**handed[400], "offset": 100_000}
    handed[500:500] = [twice]  # stored twice
    handed[300], handed[310] = handed[310], handed[300]  # two records of one key
    del handed[200]  # lost between others
    last = handed.index(sent[999])
    handed = [row for at, row in enumerate(handed) if row != sent[999] or at < last]  # the last of its key
    options = replace(
        WISH,
        deliveries=(written(tmp_path / "handed.jsonl", handed),),
        sent=(written(tmp_path / "stored.jsonl", sent),),
        out=tmp_path / "out",
    )
    console = Console(file=io.StringIO())
    findings = jobs.run_batch(spark, jobs.read_copy(jobs.read_deliveries(options)), console)
    judgement = findings.judgement
    assert {kind: judgement[kind] for kind in verdict.KINDS if judgement[kind]} == {
        "out_of_order": 1,
        "repeated": 1,
        "lost": 2,
    }
    assert (judgement["keys"], judgement["events"]) == (10, len(handed))
    assert judgement["redelivered"] == 29
    assert {story["key"] for story in findings.stories if story["kind"] == "repeated"} == {"k0"}
    clean = replace(options, deliveries=(written(tmp_path / "clean.jsonl", sent),))
    found = jobs.run_batch(spark, jobs.read_copy(jobs.read_deliveries(clean)), console)
    assert verdict.clean(found.judgement) and found.judgement["delivered"] == 1000


def test_malformed_line_ends_the_audit(tmp_path: Path) -> None:
    handed = written(tmp_path / "handed.jsonl", [{"partition": 0}])
    with pytest.raises(CannotAudit, match=r"handed\.jsonl:1: offset is missing"):
        jobs.read_deliveries(replace(WISH, deliveries=(handed,), out=tmp_path / "out"))
    fine = written(tmp_path / "fine.jsonl", [{"partition": 0, "offset": 0, "topic": one} for one in "ab"])
    with pytest.raises(CannotAudit, match=r"several topics \(a, b\)"):
        jobs.read_deliveries(replace(WISH, deliveries=(fine,), sent=(fine,), out=tmp_path / "out"))


def test_long_wait_says_what_it_waits_for() -> None:
    """A topic that is written to all the time has no end, and its audit seemed to hang."""
    said = threading.Event()

    class Written(io.StringIO):
        def write(self, text: str) -> int:
            if "reading on" in text:
                said.set()
            return len(text)

    with jobs.saying(Console(file=Written()), "reading on", 0.001):
        assert said.wait(60)
    assert "reading on" not in [one.name for one in threading.enumerate()]


@pytest.mark.parametrize("given", [{}, {"topic": "orders"}], ids=str)
def test_log_may_have_the_name_of_its_topic(given: dict[str, str], tmp_path: Path) -> None:
    name = given.get("topic", "records")
    handed = written(tmp_path / f"{name}.jsonl", [{"partition": 0, "offset": 0, **given}])
    options = replace(WISH, deliveries=(handed,), sent=(handed,), out=tmp_path / "out")
    replay = jobs.read_copy(jobs.read_deliveries(options))
    assert (replay.topic, replay.expect) == (f"{name}-deliveries", name)
    assert replay.replay is not None
    rows = pq.read_table(replay.replay / "runs.parquet", columns=["topic"])["topic"].to_pylist()
    assert rows == [replay.topic]


def test_log_that_is_not_utf_8_ends_the_audit(tmp_path: Path) -> None:
    handed = tmp_path / "handed.jsonl"
    handed.write_bytes(b'{"partition": 0, "offset": 0, "key": "\xff"}\n')
    with pytest.raises(CannotAudit, match=r"handed\.jsonl:1: not UTF-8"):
        jobs.read_deliveries(replace(WISH, deliveries=(handed,), out=tmp_path / "out"))


def test_logs_of_several_producers_are_read_in_order_of_each_partition(spark: SparkSession, tmp_path: Path) -> None:
    """The second file begins before the first one ends; checks need order."""
    files = []
    for producer in range(2):
        files.append(tmp_path / f"sent-{producer}.jsonl")
        places = [(number % 2, number // 2 * 2 + producer) for number in range(40)]
        rows = [
            {"key": f"k{producer}", "sequence": n, "partition": at, "offset": offset}
            for n, (at, offset) in enumerate(places)
        ]
        files[-1].write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = jobs.read_copy(
        jobs.read_deliveries(replace(WISH, out=tmp_path, deliveries=(files[0],), sent=tuple(files)))
    )
    records, _ = jobs._finish(spark, options)
    read = [(row["partition"], row["offset"]) for row in records.where("topic = 'records'").collect()]
    assert read == [(at, offset) for at in range(2) for offset in range(40)]
