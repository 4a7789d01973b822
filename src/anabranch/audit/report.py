"""The HTML report of an audit: verdict, timelines, violations and explanations."""

from __future__ import annotations

import datetime
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from anabranch.audit.findings import Findings, Story, violation_text
from anabranch.report import page, plots
from anabranch.report.page import BAD, CALM, GOOD, Card, Cell, Id
from anabranch.report.timeline import duration, median, percentile, pluralize
from anabranch.spark_jobs.tallies import HandOff
from anabranch.spark_jobs.verdict import COUNTED, KINDS, MEANINGS, clean

STORIES_MAX: Final = 20
STORIES_OPEN: Final = 5
"""The number of expanded violations; the others are collapsed, to keep the page short."""
IN_HEADLINE: Final = {"wrong_payload": "with a wrong payload", "two_owners": "with two owners"}
"""Kind -> its words after a count, if its name does not fit there."""
PLOTTED_MAX: Final = 4
"""The maximum number of timelines; more would make the page too long."""
EXPLAINED: Final = {
    "delivered": "records delivered to the application for the first time",
    "redelivered": "read again after a member failed, with all later records of their partition; Kafka allows this",
    "late": "audit events that were stored after later events; they are judged by their own time",
    "repeated_events": "repeated audit events, found by their numbers and ignored",
    "forgotten": "keys without deliveries for days (--forget-after); their next record counts as their first",
    "unnumbered": "records whose producer does not number them; judged by partition, offset and generation",
    "generation": "grows with each resize of the topic; a key epoch of a partition belongs to one",
    "hand-off": "after a resize moved keys: from the last delivery in the old partition to the first in the new one",
    "waiting": "stored in the topic, and not yet delivered to the application",
}
OWNER_HEAD: Final = 24
"""Long enough for the client's id, which the member's id begins with."""
_PLACES: Final = (("before", "delivered before"), ("delivered", "the delivery"), ("next", "delivered next"))


def write(path: Path, findings: Findings) -> None:
    """Write the report: one self-contained HTML file."""
    audiences = findings.audiences()
    parts = [_headline(findings), page.cards(_cards(findings))]
    if findings.found:
        parts.append(_violations(findings))
    parts += [
        _course(findings, group, topic, with_events=number == 0)
        for number, (group, topic) in enumerate(audiences[:PLOTTED_MAX])
    ]
    parts += [_summary(findings), *_job(findings), _glossary(findings)]
    path.write_text(page.page(f"Order audit of {_subject(findings)}", parts, footer="anabranch audit"), "utf-8")


def _subject(findings: Findings) -> str:
    return findings.expect or ", ".join(sorted({topic for _, topic in findings.audiences()})) or findings.topic


def _headline(findings: Findings) -> str:
    judged = findings.judgement
    delivered, groups = judged.get("delivered", 0), sorted({group for group, _ in findings.audiences()})
    wrong = {kind: judged.get(kind, 0) for kind in KINDS if judged.get(kind, 0) and kind != "before_gate"}
    if not delivered and not wrong:
        verdict, tone = "Nothing was delivered, so there is no verdict", CALM
    elif clean(judged):
        verdict, tone = f"All {delivered:,} records were delivered in order, each once", GOOD
    else:
        kinds = {kind: IN_HEADLINE.get(kind, kind.replace("_", " ")) for kind in wrong}
        counts = ", ".join(f"{count:,} {kinds[kind]}" for kind, count in wrong.items())
        verdict, tone = f"Violations: {counts}", BAD
    sub = f"{pluralize(judged.get('keys', 0), 'key')}, handed to {_name_groups(groups)}; "
    sub += f"judged {findings.how}, delivery by delivery, with Spark."
    if again := judged.get("redelivered", 0):
        sub += f" {again:,} were delivered again after a failure, as Kafka allows."
    if findings.expect is None:
        sub += " Undelivered records are not counted: no topic was named with --expect."
    return page.headline(f"Order audit of {_subject(findings)}{_period(findings)}", verdict, sub, tone)


def _name_groups(groups: Sequence[str]) -> str:
    if not groups:
        return "no group"
    more = f" and {len(groups) - 3} more" if len(groups) > 3 else ""
    return f"group{'s' if len(groups) > 1 else ''} {', '.join(groups[:3])}{more}"


def _period(findings: Findings) -> str:
    handed = findings.counted.key_epochs.values()
    if not handed:
        return ""
    began, ended = min(one.first_ms for one in handed), max(one.last_ms for one in handed)
    return f" · {_day(began)} to {_clock(ended)} UTC ({(ended - began) / 1000:,.0f} s)"


def _cards(findings: Findings) -> Iterator[Card]:
    judged = findings.judgement
    yield Card(f"{judged.get('delivered', 0):,}", "delivered, each counted once")
    for kind, label in (("out_of_order", "out of order"), ("lost", "lost"), ("repeated", "repeated")):
        yield Card(f"{judged.get(kind, 0):,}", label, BAD if judged.get(kind, 0) else GOOD)
    for kind in ("wrong_payload", "two_owners", "unaudited"):
        if judged.get(kind, 0):
            yield Card(f"{judged[kind]:,}", kind.replace("_", " "), BAD)
    yield Card(f"{judged.get('redelivered', 0):,}", "redelivered (allowed)")
    resizes = sum(len(one.history) - 1 for one in findings.lineages.values())
    if resizes:
        yield Card(f"{resizes:,}", "resize" if resizes == 1 else "resizes")
    counts = Counter(one.kind for one in findings.moments)
    done = sum(count for kind, count in counts.items() if kind not in ("resize", "phase", "restart"))
    if done:
        yield Card(f"{done:,}", "injected faults")
    took = [one.took_ms for where in findings.audiences() for one in findings.hand_offs(*where)]
    if took:
        yield Card(duration(median(took)), f"hand-off, median of {len(took)}")


def _course(findings: Findings, group: str, topic: str, *, with_events: bool) -> str:
    """The section on the deliveries of one topic to one group over time."""
    parts = [plots.timeline(findings.timeline(group, topic))]
    if hand_offs := findings.hand_offs(group, topic):
        parts.append(_hand_offs(hand_offs))
    if findings.moments and with_events:
        began_ms = findings.timeline(group, topic).began_ms
        rows = [(f"{(one.t_ms - began_ms) / 1000:,.2f} s", one.kind, one.text) for one in findings.moments]
        parts.append(page.collapsible(f"All actions ({pluralize(len(rows), 'event')})", page.table(("", "", ""), rows)))
    lead = "Deliveries to the application per second, and actions on the cluster."
    return page.section(f"{topic} in group {group}", lead, *parts)


def _hand_offs(found: Sequence[HandOff]) -> str:
    took = [one.took_ms for one in found]
    introduction = (
        f"<h3>Hand-offs</h3><p class=lead>Keys went to another partition {pluralize(len(found), 'time')}: half of them "
        f"waited up to {duration(median(took))}, nine of ten up to {duration(percentile(took, 90))}, the longest "
        f"{duration(max(took))}. A pause of the producers counts as waiting, too.</p>"
    )
    plot = plots.distribution(took, what="hand-off") if len(took) > 4 else ""
    rows: list[tuple[Cell, ...]] = [
        (one.kind, ", ".join(map(str, one.sources)), str(one.target), _clock(one.ended_ms), one.took_ms)
        for one in found
    ]
    columns = ("", "from partition@generation", "to", "at", "ms")
    return introduction + plot + page.collapsible("Every hand-off", page.table(columns, rows))


def _violations(findings: Findings) -> str:
    judged = findings.judgement
    rows = [(kind.replace("_", " "), judged[kind], MEANINGS[kind]) for kind in KINDS if judged.get(kind, 0)]
    stories = findings.stories[:STORIES_MAX]
    parts = [page.table(("what", "count", "which means"), rows)]
    if findings.causes:
        lines = "".join(f"<li>{page.escape_html(line)}</li>" for line in findings.causes)
        parts.append(f"<h3>Where records were lost, and why</h3><ul>{lines}</ul>")
    paths = itertools.chain(findings.paths, itertools.repeat(()))
    found = [rendered_violation(story, path) for story, path in zip(stories, paths, strict=False)]
    parts += found[:STORIES_OPEN]
    if folded := found[STORIES_OPEN:]:
        parts.append(page.collapsible(f"{len(folded)} more of them", "".join(folded)))
    more = findings.found - len(stories)
    if more > 0:
        parts.append(f"<p class=lead>{more:,} more are in the violations directory beside this report.</p>")
    return page.section("Violations", "Each with the neighboring records of its key.", *parts)


def rendered_violation(story: Story, path: Sequence[Story] = ()) -> str:
    """The HTML of a violation, with the deliveries of its key around it as far as they were read."""
    title = f"{str(story['kind']).replace('_', ' ')}: {violation_text(story)} (group {story['group']})"
    known = [(label, story[name]) for name, label in _PLACES if name in story]
    columns = ("", "producer", "number", "partition", "offset", "generation", "owner", "group generation", "time (UTC)")
    if path:
        labels = [next((label for label, place in known if _same(one, place)), "") for one in path]
        rows = [_place_row(label, one) for label, one in zip(labels, path, strict=True)]
        marked = [number for number, label in enumerate(labels) if label == "the delivery"]
        body = page.table(columns, rows, marked=marked)
        lead = "<p>All deliveries of this key around it, in the order in which they were stored:</p>"
    else:
        rows = [_place_row(label, place) for label, place in known]
        body = page.table(columns, rows, marked=[n for n, (label, _) in enumerate(known) if label == "the delivery"])
        lead = ""
    differs = f"<p>stored {story['stored']}, handed out {story['got']}</p>" if "stored" in story else ""
    return f"<div class=story><p><b>{page.escape_html(title)}</b></p>{lead}{differs}{body if rows else ''}</div>"


def _same(one: Story, other: Story) -> bool:
    names = ("partition", "offset", "time_ms", "incarnation")
    return all(one.get(name) == other.get(name) for name in names)


def _place_row(label: str, place: Story) -> tuple[Cell, ...]:
    number = place["sequence"] if place["sequence"] >= 0 else None
    owner = f"{place['member']} ({place['incarnation']:016x})"
    return (
        label,
        Id(f"{place['producer']:016x}") if place["producer"] else None,
        number,
        place["partition"],
        place["offset"],
        _known_number(place["generation"]),
        Id(owner, OWNER_HEAD),
        _known_number(place["group_generation"]),
        _clock(place["time_ms"]),
    )


def _known_number(number: int) -> int | None:
    return number if number >= 0 else None


def _summary(findings: Findings) -> str:
    shown = [name for name in (*COUNTED, *KINDS) if any(row.counts.get(name, 0) for row in findings.rows)]
    rows: list[tuple[Cell, ...]] = [
        (row.topic, row.group, _known_number(row.generation), *(row.counts.get(name, 0) for name in shown))
        for row in sorted(findings.rows, key=lambda one: (one.topic, one.group, one.generation))
    ]
    columns = ("topic", "group", "generation", *(name.replace("_", " ") for name in shown))
    marked = [
        place
        for place, row in enumerate(sorted(findings.rows, key=lambda one: (one.topic, one.group, one.generation)))
        if any(row.counts.get(kind, 0) for kind in KINDS)
    ]
    return page.section(
        "Summary",
        "Per topic, group and generation; a resize begins a generation.",
        page.table(columns, rows, marked=marked),
    )


def _job(findings: Findings) -> Iterator[str]:
    """The section on the audit's own progress, for a stream."""
    batches = [one for one in findings.progress if one.records]
    if not batches:
        return
    records, busy_ms = sum(one.records for one in batches), sum(one.duration_ms for one in batches)
    durations = [one.duration_ms for one in batches]
    rows: list[tuple[Cell, ...]] = [
        ("batches", len(batches)),
        ("records read, of the audit topic and the audited one", records),
        ("records per second while a batch ran", round(1000 * records / max(busy_ms, 1))),
        ("time of a batch, median", duration(median(durations))),
        ("time of a batch, nine of ten up to", duration(percentile(durations, 90))),
        ("state, at the end", f"{batches[-1].state_bytes / 1e6:,.1f} MB"),
    ]
    body = page.table(("", ""), rows, right=[1])
    yield page.section("The audit's performance", "Whether Spark was as fast as the deliveries.", body)


def _glossary(findings: Findings) -> str:
    kinds = [(kind.replace("_", " "), MEANINGS[kind]) for kind in KINDS]
    words = [(word.replace("_", " "), text) for word, text in EXPLAINED.items()]
    lead = "The audit judges what consumers delivered to their applications, not what brokers store."
    return page.section("How to read this", lead, page.definitions([*kinds, *words]))


def _day(t_ms: int) -> str:
    return _formatted(t_ms, "%Y-%m-%d %H:%M:%S")


def _clock(t_ms: int) -> str:
    return _formatted(t_ms, f"%H:%M:%S.{t_ms % 1000:03}")


def _formatted(t_ms: int, form: str) -> str:
    """A time of day; a number where there is none, as for microseconds that were taken for milliseconds."""
    try:
        return datetime.datetime.fromtimestamp(t_ms / 1000, datetime.UTC).strftime(form)
    except (OverflowError, ValueError, OSError):
        return f"{t_ms:,} ms"


def as_json(findings: Findings) -> dict[str, Any]:
    """The verdict as JSON, for tools."""
    return {
        "topic": findings.topic,
        "expect": findings.expect,
        "clean": clean(findings.judgement),
        "verdict": dict(findings.judgement),
        "rows": [{**row._asdict(), "counts": dict(row.counts)} for row in findings.rows],
        "unread": [one._asdict() for one in findings.unread],
        "hand_offs": [
            {
                "group": one.group,
                "topic": one.topic,
                "kind": one.kind,
                "from": [str(source) for source in one.sources],
                "to": str(one.target),
                "ms": one.took_ms,
            }
            for where in findings.audiences()
            for one in findings.hand_offs(*where)
        ],
    }
