"""The HTML report of a demonstration: the job with its verdict first, then the control, which violates the order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from anabranch.demo.progress import Story
from anabranch.report import page, plots
from anabranch.report.page import BAD, CALM, GOOD, Card
from anabranch.report.timeline import Span, Timeline, median, rates, waiting
from anabranch.spark_jobs.verdict import BEFORE_GATE, KINDS, LOST, OUT_OF_ORDER, REPEATED

VIOLATIONS: Final = tuple(kind for kind in KINDS if kind != BEFORE_GATE)
"""What the audit finds; `out_of_order` includes those before a gate."""
SHOWN: Final = (OUT_OF_ORDER, LOST, REPEATED)
"""The violations with a card even if there are none."""


def write(path: Path, stories: Sequence[Story]) -> None:
    """Write the report: the first story is the job itself, the others are controls."""
    job = stories[0]
    parts = [_headline(job), page.cards(_cards(job))]
    parts += [_section(story, control=place > 0) for place, story in enumerate(stories)]
    path.write_text(page.page(f"Anabranch: {job.topic}", parts, footer="anabranch demo"), encoding="utf-8")


def _headline(job: Story) -> str:
    wrong = sum(job.verdict.get(name, 0) for name in VIOLATIONS)
    resizes = sum(one.kind == "resize" and bool(one.label) for one in job.moments)
    kills = sum(one.kind == "kill" for one in job.moments)
    delivered = job.verdict.get("delivered", 0)
    good = not wrong and delivered == job.total
    if good:
        verdict = f"All {job.total:,} records were delivered in order, each once"
    elif wrong:
        verdict = f"{wrong:,} violations among {job.total:,} records"
    else:
        verdict = f"{delivered:,} of {job.total:,} records were delivered"
    sub = f"The topic was resized {resizes} times under load, and {kills} processes were killed. "
    sub += "Spark checked what was delivered to applications, delivery by delivery, during the run."
    return page.headline(f"{job.topic}: resized under load and faults", verdict, sub, GOOD if good else BAD)


def _cards(story: Story) -> list[Card]:
    found = [
        Card(f"{story.acked:,}", "records acknowledged", GOOD if story.acked == story.total else BAD),
        Card(f"{story.verdict.get('delivered', 0):,}", "delivered, each counted once"),
    ]
    for name in VIOLATIONS:
        count = story.verdict.get(name, 0)
        if count or name in SHOWN:
            found.append(Card(f"{count:,}", name.replace("_", " "), BAD if count else GOOD))
    found.append(Card(f"{story.verdict.get('redelivered', 0):,}", "redelivered after a failure (allowed)", CALM))
    if hand_offs := [ms for _, ms in story.hand_offs_ms()]:
        found.append(Card(f"{median(hand_offs):,} ms", f"hand-off, median of {len(hand_offs)}"))
    return found


def _section(story: Story, *, control: bool) -> str:
    title = "Control: the same resizes as in Kafka" if control else "The job"
    lead = (
        "Hash modulo count, and consumers that do not wait. The audit finds violations here, which "
        "shows that its check works."
        if control
        else "Actions on the cluster, their effects, and how long keys waited during hand-offs."
    )
    parts = [page.cards(_cards(story))] if control else []
    parts.append(plots.timeline(_timeline(story)))
    parts += [_hand_offs(story), _examples(story), page.collapsible("All events", _moments(story))]
    return page.section(title, lead, *parts)


def _timeline(story: Story) -> Timeline:
    indexes = sorted({index for _, counts in story.acked_series for index in counts})
    acked = [(t_ms, sum(counts.values())) for t_ms, counts in story.acked_series]
    return Timeline(
        began_ms=story.began_ms,
        ended_ms=story.ended_ms,
        rates={
            f"partition {index}": rates([(t_ms, counts.get(index, 0)) for t_ms, counts in story.acked_series])
            for index in indexes
        },
        rates_title="records acknowledged per second, by partition",
        waiting=waiting(acked, [one for one in story.delivered_series if one[0] >= story.began_ms]),
        moments=story.moments,
        spans=[
            Span(one["key_epoch"], int(one["partition"]), one["closed_ms"], one["opened_ms"]) for one in story.openings
        ],
        spans_title="closed gates",
    )


def _moments(story: Story) -> str:
    rows = [(f"{(one.t_ms - story.began_ms) / 1000:.2f} s", one.kind, one.text) for one in story.moments]
    return page.table(("", "", ""), rows)


def _hand_offs(story: Story) -> str:
    hand_offs, closed = [ms for _, ms in story.hand_offs_ms()], story.closed_ms()
    if not hand_offs:
        return "<p class=lead>No gate was closed.</p>"
    return (
        f"<p>{len(hand_offs)} gates closed and opened. They were closed, as drawn above, for a median of "
        f"{median(closed):,} ms, the longest for {max(closed):,} ms: that counts what was still to be read of the old "
        "partitions, too. The hand-off itself, from the last boundary crossed to the opening of the gate, took a "
        f"median of {median(hand_offs):,} ms, the longest {max(hand_offs):,} ms.</p>"
    )


def _examples(story: Story) -> str:
    """The first violations, each with the deliveries before and after it."""
    if not story.examples:
        return ""
    from anabranch.audit.report import rendered_violation

    return "<h3>The first violation</h3>" + "".join(rendered_violation(one) for one in story.examples)
