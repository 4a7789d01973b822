"""Runs the audit in Spark, as a stream or a batch, and writes verdict and report."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from anabranch.audit import causes, delivery_log, parquet, report, results
from anabranch.audit.audit_options import AuditOptions
from anabranch.audit.audit_snapshot import AuditSnapshot
from anabranch.audit.findings import Findings, read_events
from anabranch.audit.follower import Follower
from anabranch.audit.view import View, silence_text
from anabranch.protocol.errors import KafkaError
from anabranch.protocol.file_paths import path_below
from anabranch.protocol.lineage import Lineage
from anabranch.runtime.runner import handling
from anabranch.spark_jobs import backfill, inputs, lineages, paths, service, violations
from anabranch.spark_jobs.inputs import SourceMissing
from anabranch.spark_jobs.verdict import KINDS, LOST, clean
from anabranch.spark_jobs.violations import Violations
from anabranch.spark_jobs.writer import TopicWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from anabranch.report.timeline import Moment

POLL_S: Final = 0.5
SAY_EVERY_S: Final = 30.0
SHOWN_MAX: Final = 20
"""The maximum number of violations on the terminal; the files have all of them."""
COPY_FACTS: Final = "_audit.json"
"""The description of a copy, in its directory; Spark ignores names that begin with an underscore."""
ALL: Final = "all"


def run_stream(session: SparkSession, options: AuditOptions, console: Console) -> Findings:
    """Audit a topic's current content, or until stopped."""
    assert options.topic is not None, "checked"
    audits = service.AuditService(
        session,
        options.bootstrap_servers,
        options.out,
        tell=lambda *_, **__: None,
        source=options.source,
        fail_on_data_loss=options.fail_on_data_loss,
        client=options.client,
    )
    target, snapshot = audits.target(options.topic, options.scope), AuditSnapshot(options.topic)
    with contextlib.ExitStack() as stack:
        view = View(console)
        tell = _some(view.tell)
        outputs = Violations(target.violations, _topic(stack, options), [snapshot.add_event, tell])
        if options.metrics_port is not None:
            from anabranch.audit.metrics import expose

            console.print(
                f"metrics={stack.enter_context(expose(snapshot, options.metrics_host, options.metrics_port))}"
            )
        following = target.directory / results.FOLLOWING
        following.unlink(missing_ok=True)  # left by a killed audit
        stack.callback(following.unlink, missing_ok=True)
        running = audits.begin(options.topic, options.scope, outputs)
        follower = Follower(target, lambda: running.query, snapshot, lambda: time.time_ns() // 1_000_000)
        if options.follow:
            with view, until_interrupted() as interrupted:
                while not interrupted.wait(POLL_S) and audits.active(options.topic):
                    follower.poll()
                    if follower.has_started:
                        following.touch()
                    view.tick(snapshot, time.time_ns() / 1e9)
        if options.expect is not None:
            outputs.listeners = [snapshot.add_event, _but_losses(tell)]
        topics = " and ".join(one for one in (options.topic, options.expect) if one is not None)
        try:
            with saying(console, f"reading on: the verdict comes when {topics} got no record for a second"):
                judgement = audits.finish(options.topic)
        except service.CannotAudit as error:
            if snapshot.silent:
                raise service.CannotAudit(f"{error}; {silence_text(snapshot)}") from error
            raise
        follower.poll()
        follower.settle()
    findings = _with_causes(results.of_stream(target, judgement, _moments(options)), options)
    return _with_paths(findings, lambda: _topics(session, options, [target.topic]))


def run_batch(session: SparkSession, options: AuditOptions, console: Console) -> Findings:
    """Audit a topic's current content, or a copy of it."""
    assert options.topic is not None, "checked"
    records, known = _finish(session, options)
    found = backfill.run(records, options.scope)
    options.directory.mkdir(parents=True, exist_ok=True)
    clock_ms = max((one.last_ms for one in found.beside.key_epochs.values()), default=0)
    tell = _some(View(console).tell)
    listener = tell if options.expect is None else _but_losses(tell)
    Violations(options.directory / "violations", None, [listener]).take(ALL, found.violations, clock_ms)
    findings = _with_causes(results.of_batch(options.topic, options.expect, found, known, _moments(options)), options)
    if options.replay is None:
        known = _fetch_lineages(options, results.topics(findings))
        findings = replace(findings, lineages=known)
        lineages.save(options.directory / results.LINEAGES, known)
    if options.copy is not None:
        copy(records, options, known)
    return _with_paths(findings, lambda: records.where(F.col("topic") == F.lit(options.topic)))


def copy(records: DataFrame, options: AuditOptions, known: dict[str, Lineage]) -> None:
    """Write a batch job's input to a directory, for another audit without the cluster."""
    assert options.copy is not None
    records.write.parquet(str(options.copy))
    facts = {
        "topic": options.topic,
        "expect": options.expect,
        "groups": options.groups,
        "forget_after": options.forget_after,
    }
    (options.copy / COPY_FACTS).write_text(json.dumps(facts))
    lineages.save(options.copy / f"_{results.LINEAGES}", known)


def read_deliveries(options: AuditOptions) -> AuditOptions:
    """The options for auditing logged deliveries, from a copy that this function makes.

    Raises CannotAudit for an invalid line, OSError.
    """
    topic = options.deliveries[0].name.partition(".")[0]
    directory = Path(path_below(str(options.out), topic)) / "written"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    with contextlib.ExitStack() as stack:

        def files(paths: Sequence[Path]) -> list[delivery_log.Lines]:
            opened = (stack.enter_context(path.open(encoding="utf-8", errors="surrogateescape")) for path in paths)
            return [delivery_log.Lines(path.name, lines) for path, lines in zip(paths, opened, strict=True)]

        try:
            audited = parquet.write(directory / "stored.parquet", delivery_log.stored_records(files(options.sent)))
            if topic in audited:  # a file may have the name of the topic that it is about
                topic = f"{topic}-deliveries"
            parquet.write(
                directory / "runs.parquet", delivery_log.runs(delivery_log.deliveries(files(options.deliveries)), topic)
            )
        except delivery_log.InvalidLine as error:
            raise service.CannotAudit(str(error)) from None
    if len(audited) > 1:
        raise service.CannotAudit(f"--sent has several topics ({', '.join(sorted(audited))}): audit each alone")
    facts = {"topic": topic, "expect": next(iter(audited), None)}
    (directory / COPY_FACTS).write_text(json.dumps(facts))
    return replace(options, replay=directory)


def read_copy(options: AuditOptions) -> AuditOptions:
    """The options for auditing a copy: options that the user has not given are those of the copy."""
    assert options.replay is not None
    path = options.replay / COPY_FACTS
    if not path.exists():
        raise service.CannotAudit(
            f"{options.replay} has no copy of an audit: `anabranch audit --backfill --copy` makes one"
        )
    facts = json.loads(path.read_text())
    groups = options.groups or tuple(facts.get("groups", ()))
    topic, expect = options.topic or facts["topic"], options.expect or facts["expect"]
    forget_after = facts.get("forget_after") if options.forget_after is None else options.forget_after
    return replace(options, topic=topic, expect=expect, groups=groups, forget_after=forget_after)


def conclude(findings: Findings, directory: Path, console: Console, *, allow_empty: bool = False) -> int:
    """Write verdict and report, and print the verdict. Returns the exit status.

    Raises CannotAudit if nothing was delivered, unless `allow_empty`.
    """
    results.write_verdict(directory / results.VERDICT, report.as_json(findings))
    report.write(directory / results.REPORT, findings)
    for line in findings.causes:
        console.print(f"lost: {line}", style="red")
    if findings.found > SHOWN_MAX:
        console.print(f"{findings.found - SHOWN_MAX:,} more violations in {directory / 'violations'}")
    console.print(verdict_table(findings))
    console.print(f"report: {directory / results.REPORT}")
    if not clean(findings.judgement):
        return 1
    if not findings.judgement.get("events") and not allow_empty:
        raise service.CannotAudit(
            f"nothing was delivered: {findings.topic} has no audit events. Consumers write them with "
            f"audit={findings.topic!r} (--allow-empty accepts this)"
        )
    return 0


def verdict_table(findings: Findings) -> Table:
    """The verdict as a table."""
    table = Table("", "count", title=f"Audit of {findings.topic}")
    for name, count in findings.judgement.items():
        table.add_row(name.replace("_", " "), f"{count:,}", style="red" if count and name in KINDS else "")
    return table


@contextlib.contextmanager
def saying(console: Console, text: str, every_s: float = SAY_EVERY_S) -> Iterator[None]:
    """Print a text from time to time while the block runs: Spark reads on as long as records come."""
    done = threading.Event()

    def say() -> None:
        while not done.wait(every_s):
            console.print(text)

    thread = threading.Thread(target=say, name="reading on", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextlib.contextmanager
def until_interrupted() -> Iterator[threading.Event]:
    """An event that Ctrl-C sets while the block runs."""
    interrupted = threading.Event()
    with handling(signal.SIGINT, lambda *_: interrupted.set()):
        yield interrupted


def _topic(stack: contextlib.ExitStack, options: AuditOptions) -> TopicWriter | None:
    if options.violations_to is None:
        return None
    return stack.enter_context(
        contextlib.closing(TopicWriter(options.bootstrap_servers, options.violations_to, options.client))
    )


def _with_causes(findings: Findings, options: AuditOptions) -> Findings:
    """Add the causes of losses, as known by the cluster; not for a copy, whose cluster may be gone."""
    servers = options.bootstrap_servers if options.replay is None else None
    return replace(findings, causes=causes.in_lines(servers, findings.unread, options.client))


def _but_losses(tell: violations.Tell) -> violations.Tell:
    """A listener that passes on all violations except losses, which get one line per cause."""

    def filter_story(story: dict[str, Any]) -> None:
        if story["kind"] != LOST:
            tell(story)

    return filter_story


def _some(tell: violations.Tell) -> violations.Tell:
    """A listener that passes on the first few violations."""
    left = SHOWN_MAX

    def filter_story(story: dict[str, Any]) -> None:
        nonlocal left
        if left:
            left -= 1
            tell(story)

    return filter_story


def _moments(options: AuditOptions) -> Sequence[Moment]:
    return read_events(options.events) if options.events is not None else ()


def _finish(session: SparkSession, options: AuditOptions) -> tuple[DataFrame, dict[str, Lineage]]:
    if options.replay is not None:
        records = session.read.parquet(str(options.replay))
        return _in_order(records, options), lineages.load(options.replay / f"_{results.LINEAGES}")
    topics = [topic for topic in (options.topic, options.expect) if topic is not None]
    try:
        return _topics(session, options, topics), {}
    except SourceMissing as error:
        raise service.CannotAudit(str(error)) from error


def _in_order(records: DataFrame, options: AuditOptions) -> DataFrame:
    """Sort each audited log by offset: the checks require it, and logged lines of several producers are unsorted."""
    if not options.deliveries or options.expect is None:
        return records
    stored = F.col("topic") == F.lit(options.expect)
    return records.where(~stored).union(records.where(stored).orderBy("partition", "offset"))


def _topics(session: SparkSession, options: AuditOptions, topics: Sequence[str]) -> DataFrame:
    return inputs.batch(
        session,
        options.bootstrap_servers,
        topics,
        source=options.source,
        fail_on_data_loss=options.fail_on_data_loss,
        isolation_level=options.isolation_level,
        client=options.client,
    )


def _with_paths(findings: Findings, records: Callable[[], DataFrame]) -> Findings:
    """Add the deliveries of each key with a violation, as far as they can still be read."""
    if not findings.stories:
        return findings
    try:
        return replace(findings, paths=paths.around(records(), findings.stories))
    except (PySparkException, service.CannotAudit):
        return findings


def _fetch_lineages(options: AuditOptions, topics: set[str]) -> dict[str, Lineage]:
    try:
        return lineages.ask(options.bootstrap_servers, topics, options.client)
    except (KafkaError, OSError):
        return {}  # a report without hand-offs is better than none
