"""The report is self-contained, begins with the verdict, and shows each violation completely."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from anabranch.audit import report
from anabranch.audit.findings import Findings, InvalidEvents, read_events, write_events
from anabranch.report.timeline import Moment
from anabranch.spark_jobs import verdict
from anabranch.spark_jobs.verdict import Violation
from tests.anabranch.audit import made
from tests.anabranch.audit.made import BEGAN_MS, EARLY, EVENT, LOST, findings, rows

PRODUCER = "<td><abbr title='0000000000000007'>0000000…0007</abbr></td>"
"""The producer's id, shortened, with the whole as a tooltip."""


def written(found: Findings, directory: Path) -> str:
    report.write(directory / "report.html", found)
    return (directory / "report.html").read_text()


def test_clean_audit_is_reported_first_without_external_resources(tmp_path: Path) -> None:
    page = written(findings(), tmp_path)
    assert "<header class='good'>" in page and "All 10 records were delivered in order, each once" in page
    assert "2 keys, handed to group billing" in page
    assert "Violations" not in page
    assert "<script src" not in page and "<link" not in page and "<svg" in page
    assert page.index("All 10 records") < page.index("<svg")


def test_violations_come_first_with_their_records(tmp_path: Path) -> None:
    page = written(findings(EARLY, LOST), tmp_path)
    assert "<h1>Violations: 1 out of order, 4 lost</h1>" in page
    assert page.index("Violations") < page.index("<svg")
    assert "before gate: key k1 (number 4): orders-0 at 12" in page
    assert "r1.2 (0000000000000abc)" in page
    assert "key &lt;k2&gt;: 3-5, 9 skipped" in page and "<k2>" not in page


def test_time_beyond_the_calendar_is_a_number(tmp_path: Path) -> None:
    """A log of deliveries may have microseconds."""
    late = made.counted(stored=0)
    columns = {"name": [0], "partition": [0], "generation": [2], "time_ms": [1_700_000_000_000_000], "count": [1]}
    late.deliver([("billing", "orders")], {name: np.array(column) for name, column in columns.items()})
    story = EARLY._replace(event=EVENT._replace(time_ms=1_700_000_000_000_000))
    page = written(findings(story, counted=late), tmp_path)
    assert page.count("1,700,000,000,000,000 ms") == 2


def test_headline_is_a_sentence(tmp_path: Path) -> None:
    two_owners = Violation.of(verdict.TWO_OWNERS, EVENT, before=EVENT)
    page = written(findings(EARLY, two_owners, two_owners), tmp_path)
    assert "<h1>Violations: 1 out of order, 2 with two owners</h1>" in page


def test_path_of_key_marks_the_delivery(tmp_path: Path) -> None:
    path = [EVENT._replace(sequence=3, offset=11).place(), EVENT.place()]
    page = written(findings(EARLY, paths=[path]), tmp_path)
    assert page.count(f"<tr class=mark><td>the delivery</td>{PRODUCER}<td class=n>4</td>") == 1
    assert "<td class=n>3</td><td class=n>0</td><td class=n>11</td>" in page


def test_violations_of_two_groups_have_separate_paths(tmp_path: Path) -> None:
    theirs = EVENT._replace(group="shipping", member="s1", incarnation=0xDEF)
    other = EARLY._replace(group="shipping", event=theirs, before=theirs._replace(sequence=5, offset=13))
    page = written(findings(EARLY, other, paths=[[EVENT.place()], [theirs.place()]]), tmp_path)
    of_billing, of_shipping = page.split("<div class=story>")[1:]
    assert "r1.2" in of_billing and "s1 (0000000000000def)" not in of_billing
    assert "s1 (0000000000000def)" in of_shipping and "r1.2" not in of_shipping
    assert page.count("<tr class=mark><td>the delivery</td>") == 2


def test_loss_is_shown_between_deliveries_around_it(tmp_path: Path) -> None:
    before, after = EVENT._replace(sequence=2, offset=11), EVENT._replace(sequence=6, offset=15)
    lost = LOST._replace(before=before, after=after)
    page = written(findings(lost, paths=[[before.place(), after.place()]]), tmp_path)
    assert f"<td>delivered before</td>{PRODUCER}<td class=n>2</td>" in page
    assert f"<td>delivered next</td>{PRODUCER}<td class=n>6</td>" in page


def test_many_violations_are_counted_and_few_shown(tmp_path: Path) -> None:
    many = findings(EARLY, stories=[EARLY.story()] * 30, found=500)
    page = written(many, tmp_path)
    assert page.count("<div class=story>") == report.STORIES_MAX
    open_ones, folded = page.split("<summary>15 more of them</summary>")
    assert (open_ones.count("<div class=story>"), folded.count("<div class=story>")) == (report.STORIES_OPEN, 15)
    assert f"{500 - report.STORIES_MAX} more are in the violations directory" in page


def test_audit_without_deliveries_claims_nothing(tmp_path: Path) -> None:
    page = written(Findings("t", None, verdict.judge([], keys=0)), tmp_path)
    assert "<header class=''>" in page and "Nothing was delivered" in page


def test_timeline_has_resizes_hand_offs_and_pending_records() -> None:
    shown = findings(EARLY).timeline("billing", "orders")
    assert [(span.partition, span.took_ms) for span in shown.spans] == [(2, 150), (0, 260)]
    assert [(one.kind, one.label) for one in shown.moments] == [("resize", "3 partitions"), ("resize", "2 partitions")]
    assert shown.waiting[-1][1] == 0 and max(count for _, count in shown.waiting) > 0
    assert [one.t_ms for one in shown.offences] == [BEGAN_MS + 2500]
    assert sum(rate / 2 for _, rate in shown.rates["partition 2"]) == 3


def test_record_timestamps_do_not_stretch_the_timeline() -> None:
    counted = made.counted(stored=0)
    counted.store("orders", np.zeros(10, np.int64), np.arange(10) * 86_400_000)
    shown = findings(counted=counted).timeline("billing", "orders")
    assert shown.ended_ms - shown.began_ms == 3000
    assert shown.waiting[0][1] == 9 and shown.waiting[-1][1] == 0, "everything was there before"
    counted = made.counted(stored=0)
    counted.store("orders", np.zeros(10, np.int64), BEGAN_MS + 86_400_000 + np.arange(10))
    assert findings(counted=counted).timeline("billing", "orders").waiting == []


def test_recorded_events_replace_derived_resizes() -> None:
    done = [Moment(BEGAN_MS + 1000, "kill", "broker 1 was killed", "broker 1"), Moment(BEGAN_MS - 5, "phase", "early")]
    assert findings(moments=done).timeline("billing", "orders").moments == done[:1]


def test_events_survive_the_round_trip(tmp_path: Path) -> None:
    done = [Moment(3, "kill", "x", "y"), Moment(9, "resize", "z")]
    write_events(tmp_path / "events", reversed(done))
    assert read_events(tmp_path / "events") == done
    (tmp_path / "events").write_text('{"t_ms": 1, "kind": "kill", "text": "t"}\n\n{"t_ms": 1}\n')
    with pytest.raises(InvalidEvents, match=r"events:3: not an event: KeyError\('kind'\)"):
        read_events(tmp_path / "events")


def test_json_verdict_has_rows_and_hand_offs() -> None:
    document = json.loads(json.dumps(report.as_json(findings(LOST))))
    assert (document["clean"], document["verdict"]["lost"]) == (False, 4)
    assert document["hand_offs"][0] == {
        "group": "billing",
        "topic": "orders",
        "kind": "split",
        "from": ["0@0"],
        "to": "2@1",
        "ms": 150,
    }
    assert [row["generation"] for row in document["rows"]] == [row.generation for row in rows()]
