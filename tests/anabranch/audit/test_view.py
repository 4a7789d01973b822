"""The view of a running audit, with and without a terminal, and its metrics."""

from __future__ import annotations

import io
import threading
import urllib.request

from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from anabranch.audit import metrics, view
from anabranch.audit.audit_snapshot import RECENT_MAX, AuditSnapshot
from anabranch.audit.findings import violation_text
from anabranch.audit.view import View
from anabranch.spark_jobs.progress import Progress
from anabranch.spark_jobs.verdict import UNAUDITED, Violation
from tests.anabranch.audit.made import BEGAN_MS, EARLY, LOST, findings

NOW_S = BEGAN_MS / 1000 + 4


def sight(*violations: object) -> AuditSnapshot:
    found = findings(*violations)  # type: ignore[arg-type]
    made = AuditSnapshot("orders-audit", behind=7, delivered_ms=BEGAN_MS + 2900)
    made.judge(found.judgement, 200)
    made.hand_offs = found.hand_offs("billing", "orders")
    assert made.add_progress(Progress(0, BEGAN_MS, 20, 400, 5000))
    return made


def text_of(thing: object) -> str:
    console = Console(width=120, file=io.StringIO())
    console.print(thing)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_status_line_has_findings_and_progress() -> None:
    assert view.line(AuditSnapshot("t"), NOW_S) == "t: warming up"
    assert view.line(sight(), NOW_S) == (
        "orders-audit: 10 delivered, 0 redelivered, no violation; 50 deliveries/s, newest delivery judged 1.1 s old"
    )
    assert "4 lost" in view.line(sight(LOST), NOW_S)


def test_unresponsive_broker_replaces_old_rate() -> None:
    seen = sight()
    seen.silent, seen.answered_ms = True, BEGAN_MS
    assert view.line(seen, NOW_S).endswith("no violation; no broker has responded since 22:13:20 UTC")
    assert "no broker has responded since 22:13:20 UTC" in text_of(view.screen(seen, NOW_S))


def test_rate_is_current() -> None:
    assert "; 0 deliveries/s, " in view.line(sight(), NOW_S + 10)


def test_missing_audit_events_name_their_member() -> None:
    hole = Violation(UNAUDITED, "billing", "orders", 0, None, sequences=((270, 270),), member="reader-2")
    text = violation_text(hole.story())
    assert text.startswith("1 event of member reader-2 missing from the audit topic (number 270 of its events")
    assert "271 events of member reader-2" in violation_text(hole._replace(sequences=((0, 270),)).story())


def test_screen_shows_violations_and_hand_offs() -> None:
    seen = sight(EARLY)
    seen.add_event(EARLY.story())
    shown = text_of(view.screen(seen, NOW_S))
    assert "1 before gate" in shown and "7 records" in shown
    assert "key k1 (number 4): orders-0 at 12" in shown
    assert "2@1" in shown and "150" in shown and "2 in all" in shown


def test_pending_and_skipped_records_are_shown() -> None:
    """Without `--expect`, undelivered records are unknown."""
    seen = sight()
    assert "waiting" not in text_of(view.screen(seen, NOW_S))
    seen.judge({**seen.judgement, "waiting": 5, "passed": 2, "forgotten": 3}, 0)
    shown = text_of(view.screen(seen, NOW_S))
    assert "5 records" in shown and "2 of these" in shown
    values = {name: value for name, _, _, samples in metrics.families(seen) for _, value in samples if "_" in name}
    names = ("waiting_records", "passed_records", "forgotten_keys_total")
    assert [values[f"anabranch_audit_{name}"] for name in names] == [5, 2, 3]


def test_violation_is_shown_with_previous_delivery() -> None:
    shown = text_of(view.violation_line(EARLY.story()))
    before, then = (next(line.split() for line in shown.splitlines() if word in line) for word in ("before  ", "then"))
    assert before[2:8] == ["0000000000000007", "5", "2", "0", "1", "r1.2"]
    assert then[1:7] == ["0000000000000007", "4", "0", "12", "1", "r1.2"]


def test_speed_is_that_of_latest_deliveries() -> None:
    seen = AuditSnapshot("t")
    seen.judge({"events": 100}, 500)
    seen.judge({"events": 100}, 500)
    seen.judge({"events": 130}, 100)
    assert seen.speeds == [200, 300]


def test_without_terminal_a_line_is_printed_periodically() -> None:
    console = Console(width=200, file=io.StringIO())
    with View(console) as shown:
        for tenth in range(100):
            shown.tick(sight(), tenth / 10)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().count("orders-audit") == 2


def test_repeated_progress_is_ignored_and_newest_violations_kept() -> None:
    seen = sight()
    assert not seen.add_progress(Progress(0, 1, 1, 1, 1))
    for _ in range(RECENT_MAX + 3):
        seen.add_event(LOST.story())
    assert len(seen.recent_violations) == RECENT_MAX
    assert view.sparkline([0, 5, 10]) == "▁▅█" and view.sparkline([]) == ""


def test_prometheus_metrics_have_audit_state() -> None:
    with metrics.expose(sight(LOST), "127.0.0.1", 0) as url, urllib.request.urlopen(url, timeout=60) as answer:
        found = {family.name: family for family in text_string_to_metric_families(answer.read().decode())}
    assert "metrics" not in {one.name for one in threading.enumerate()}
    assert {family.full_name.removesuffix("_total") for family in metrics.FAMILIES} <= set(found)
    violations = {one.labels["kind"]: one.value for one in found["anabranch_audit_violations"].samples}
    assert violations["lost"] == 4 and violations["repeated"] == 0
    assert found["anabranch_audit_behind_records"].samples[0].labels == {"topic": "orders-audit"}
    lengths = {
        (one.name, one.labels.get("kind"), one.labels.get("le")): one.value
        for one in found["anabranch_audit_hand_off_seconds"].samples
    }
    assert lengths["anabranch_audit_hand_off_seconds_bucket", "split", "0.25"] == 1
    assert lengths["anabranch_audit_hand_off_seconds_sum", "merge", None] == 0.26
