"""All results of one audit as plain data, the input of the report.

Counts and violations come from the checks (`spark_jobs.verdict`), times and hand-offs from `spark_jobs.tallies`.
Actions on the cluster during the audit come from a file of events, given with `--events`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anabranch.protocol.lineage import Lineage
from anabranch.report.timeline import Moment, Offence, Span, Timeline
from anabranch.spark_jobs.progress import Progress
from anabranch.spark_jobs.tallies import STORED, HandOff, Series, Tallies
from anabranch.spark_jobs.verdict import UNAUDITED, Tally, Unread

Story = Mapping[str, Any]


class InvalidEvents(ValueError):
    """An unreadable file of events; the message names the line."""


@dataclass(slots=True)
class Findings:
    """The results of one audit, finished or running."""

    topic: str
    """The audit topic."""
    expect: str | None
    judgement: Mapping[str, int]
    rows: Sequence[Tally] = ()
    unread: Sequence[Unread] = ()
    """Lost records by group and partition; known if --expect names the audited topic."""
    causes: Sequence[str] = ()
    """The causes of losses, as far as the cluster knows: a line for each cause, with the partitions."""
    counted: Tallies = field(default_factory=Tallies)
    lineages: Mapping[str, Lineage] = field(default_factory=dict)
    """Topic -> lineage, of ordered topics."""
    stories: Sequence[Story] = ()
    """The first violations."""
    found: int = 0
    """The number of violations."""
    paths: Sequence[Sequence[Story]] = ()
    """For each of the first violations, the deliveries of its key around it; empty if they were not read."""
    moments: Sequence[Moment] = ()
    progress: Sequence[Progress] = ()
    how: str = "while it happened"

    def audiences(self) -> list[tuple[str, str]]:
        """The pairs of group and topic, the one with the most deliveries first."""
        delivered = {
            one: sum(handed.records for where, handed in self.counted.key_epochs.items() if where[:2] == one)
            for one in self.counted.audiences()
        }
        return sorted(delivered, key=lambda one: (-delivered[one], one))

    def hand_offs(self, group: str, topic: str) -> list[HandOff]:
        """The hand-offs of one topic in one group."""
        lineage = self.lineages.get(topic)
        return [] if lineage is None else self.counted.hand_offs(group, topic, lineage)

    def timeline(self, group: str, topic: str) -> Timeline:
        """The timeline of one topic in one group."""
        delivered = self.counted.series(group, topic)
        starts = [t_ms for series in delivered.partitions.values() for t_ms, _ in series]
        began_ms, ended_ms = min(starts), max(starts) + delivered.bin_ms
        scale = 1000 / delivered.bin_ms
        hand_offs = self.hand_offs(group, topic)
        return Timeline(
            began_ms=began_ms,
            ended_ms=max([ended_ms, *(one.t_ms for one in self.moments)]),
            rates={
                f"partition {index}": [(t_ms, count * scale) for t_ms, count in series]
                for index, series in delivered.partitions.items()
            },
            rates_title="records delivered per second, by partition",
            waiting=waiting(self.counted.series(STORED, topic), delivered, began_ms),
            moments=[one for one in self.moments if one.t_ms >= began_ms] or self._resizes(group, topic),
            spans=[_span(one) for one in hand_offs],
            spans_title="hand-offs: from the last delivery of the old partitions to the first of the new one",
            offences=[
                Offence(t_ms, str(story["kind"]).replace("_", " "), violation_text(story))
                for story in self.stories
                if story["group"] == group and (t_ms := time_of(story)) is not None
            ],
        )

    def _resizes(self, group: str, topic: str) -> list[Moment]:
        """Resizes inferred from deliveries: the first record of each generation."""
        lineage = self.lineages.get(topic)
        firsts: dict[int, int] = {}
        for (its_group, its_topic, key_epoch), handed in self.counted.key_epochs.items():
            if (its_group, its_topic) == (group, topic):
                known = firsts.get(key_epoch.generation, handed.first_ms)
                firsts[key_epoch.generation] = min(known, handed.first_ms)
        made = []
        for generation, t_ms in sorted(firsts.items()):
            if lineage is not None and generation > lineage.history[0][0]:
                count = lineage.count_at(generation)
                text = f"first delivery of generation {generation}, {count} partitions"
                made.append(Moment(t_ms, "resize", text, f"{count} partitions"))
        return made


def waiting(stored: Series, delivered: Series, began_ms: int) -> list[tuple[int, int]]:
    """The number of stored and undelivered records over time, from the first delivery on.

    Returns (end of a bin in ms, count) pairs; none if the times of the stored records are unknown, or later than their
    delivery.
    """
    changes: dict[int, int] = {}
    for sign, (bin_ms, partitions) in ((1, stored), (-1, delivered)):
        for t_ms, count in itertools.chain.from_iterable(partitions.values()):
            changes[t_ms + bin_ms] = changes.get(t_ms + bin_ms, 0) + sign * count
    last_ms = max((bins[-1][0] + delivered.bin_ms for bins in delivered.partitions.values()), default=0)
    found, level = [], 0
    for t_ms, change in sorted(changes.items()):
        level += change
        if began_ms <= t_ms <= last_ms:
            found.append((t_ms, max(level, 0)))
    return found if any(level for _, level in found) else []


def time_of(story: Story) -> int | None:
    """The time of a violation, as far as it is known."""
    place = story.get("delivered") or story.get("next") or story.get("before")
    return None if place is None else int(place["time_ms"])


def violation_text(story: Story) -> str:
    """A violation in one line."""
    if story["kind"] == UNAUDITED:
        return _hole(story)
    key = "a record without a key" if story.get("key") is None else f"key {story['key']}"
    if spans := story.get("sequences"):
        numbers = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
        return f"{key}: {numbers} {story['meaning']}"
    place = story.get("delivered") or story
    number = f" (number {place['sequence']})" if place.get("sequence", -1) >= 0 else ""
    return f"{key}{number}: {story['topic']}-{place.get('partition')} at {place.get('offset')}, {story['meaning']}"


def _hole(story: Story) -> str:
    """Missing events of a member: how many, and the gap in its numbers."""
    count = sum(last - first + 1 for first, last in story["sequences"])
    numbers = ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in story["sequences"])
    what = f"1 event of member {story['member']}" if count == 1 else f"{count:,} events of member {story['member']}"
    return f"{what} missing from the audit topic (number {numbers} of its events in one bucket of keys)"


def read_events(path: Path) -> list[Moment]:
    """Read actions on a cluster: a JSON object per line, with t_ms, kind, text, and label for the timeline."""
    moments = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
            moments.append(
                Moment(int(found["t_ms"]), str(found["kind"]), str(found["text"]), str(found.get("label", "")))
            )
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidEvents(f"{path}:{number}: not an event: {error!r}") from None
    return sorted(moments, key=lambda one: one.t_ms)


def write_events(path: Path, moments: Iterable[Moment]) -> None:
    """Write a file of events for `read_events`."""
    lines = (json.dumps({"t_ms": one.t_ms, "kind": one.kind, "text": one.text, "label": one.label}) for one in moments)
    path.write_text("".join(f"{line}\n" for line in lines))


def _span(one: HandOff) -> Span:
    sources = " and ".join(map(str, one.sources))
    return Span(f"{one.kind}: {sources} to {one.target}", one.target.partition, one.began_ms, one.ended_ms)
