"""The plan and the lineage of a topic's resizes as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anabranch.clients.resize_plan import family, plan_resize
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.resize.lineage_picture import draw

if TYPE_CHECKING:
    from anabranch.clients.metadata import Topic
    from anabranch.protocol.lineage import KeyEpoch, Lineage

LINES_MAX = 16
DRAWN_MAX = 64
EVEN = 1e-9
"""The tolerated rounding error in a sum of fractions."""


def plan_lines(topic: Topic, count: int) -> list[str]:
    """The lines of the plan for a resize to `count` partitions. Raises KafkaError where the broker would."""
    if topic.lineage is None:
        return [f"{topic.name} has enable.ordered.delivery=false: it grows as in Kafka, without the order of keys"]
    if count == topic.lineage.count:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"{topic.name} already has {count} partitions")
    try:
        plan = plan_resize(topic.lineage, count)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"{topic.name}: {error}") from None
    untouched = len(set(range(plan.before)) - set(plan.fenced))
    waits = [
        f"{partition} waits until {_format_partitions(sources)} {'is' if len(sources) == 1 else 'are'} read to the cut"
        for partition, sources in sorted(plan.waits.items())
    ]
    return [
        f"{topic.name}: {plan.before} -> {plan.after} partitions, generation {plan.generation}",
        f"  keys that move      {plan.moved_share:.1%}",
        f"  fullest over mean   {plan.imbalance_before:.2f} now, {plan.imbalance_after:.2f} then",
        *([] if plan.imbalance_after < 1 + EVEN else [f"  share of keys then  {_share_names(plan.shares_after)}"]),
        f"  fenced for a moment {_format_partitions(plan.fenced)}; {untouched} untouched",
        *(f"  {line}" for line in shorten(waits)),
    ]


def lineage_lines(topic: Topic, ends: Mapping[KeyEpoch, int], partition: int | None = None) -> list[str]:
    """The lines of a topic's lineage, with the offsets of the cuts.

    `partition` limits them to partitions that ever shared keys with it. Raises ValueError for a topic that is not
    ordered.
    """
    lineage = topic.lineage
    if lineage is None:
        raise ValueError(f"{topic.name} has enable.ordered.delivery=false: it has no lineage")
    width = max(count for _, count in lineage.history)
    if partition is not None and partition >= width:
        raise ValueError(f"{topic.name} has no partition {partition}")
    shown = sorted(range(width) if partition is None else family(lineage, partition))
    if len(shown) > DRAWN_MAX:
        raise ValueError(f"{len(shown)} partitions are too many to draw: choose one with --partition")
    cuts = [line for index in shown for line in _cut_lines(lineage, index, ends)]
    return [topic.name, *draw(lineage, shown), *([""] if cuts else []), *shorten(cuts, DRAWN_MAX)]


def lineage_rows(topic: Topic, ends: Mapping[KeyEpoch, int], partition: int | None = None) -> list[dict[str, Any]]:
    """The lineage as rows: each key epoch with its end offset, and the key epochs before and after it."""
    lineage = topic.lineage
    if lineage is None:
        raise ValueError(f"{topic.name} has enable.ordered.delivery=false: it has no lineage")
    width = max(count for _, count in lineage.history)
    shown = sorted(range(width) if partition is None else family(lineage, partition))
    return [
        {
            "topic": topic.name,
            "partition": key_epoch.partition,
            "generation": key_epoch.generation,
            "end": ends.get(key_epoch),
            "predecessors": [[one.partition, one.generation] for one in lineage.predecessors(key_epoch)],
            "successors": [[one.partition, one.generation] for one in lineage.successors(key_epoch)],
        }
        for index in shown
        for key_epoch in lineage.key_epochs(index)
        if index < lineage.count_at(key_epoch.generation)
    ]


def _cut_lines(lineage: Lineage, index: int, ends: Mapping[KeyEpoch, int]) -> list[str]:
    lines = []
    for key_epoch in lineage.key_epochs(index):
        following = lineage.next(key_epoch)
        if following is None or key_epoch not in ends:
            continue
        others = [one.partition for one in lineage.successors(key_epoch)]
        generation = following.generation
        if index >= lineage.count_at(generation):
            what = f"merged into {_format_partitions(others)}"
        elif others:
            what = f"split, {_format_partitions(others)} took some of its keys"
        else:
            merged = [one.partition for one in lineage.predecessors(following)]
            what = f"took the keys of {_format_partitions(merged)}" if merged else "came back"
        lines.append(f"  {index:>4} cut at offset {ends[key_epoch]:>10,} by generation {generation}: {what}")
    return lines


def shorten(lines: Sequence[str], most: int = LINES_MAX) -> list[str]:
    """The first lines, at most `most`, and the number of the others."""
    if len(lines) <= most:
        return list(lines)
    return [*lines[: most - 1], f"... and {len(lines) - most + 1} more"]


def _share_names(shares: Sequence[float]) -> str:
    """The partitions with their shares of all keys, the largest first."""
    holders: dict[str, list[int]] = {}
    for partition, share in sorted(enumerate(shares), key=lambda one: -one[1]):
        holders.setdefault(f"{share:.3%}" if share < 0.001 else f"{share:.1%}", []).append(partition)
    return "; ".join(
        f"{share} on {'each of ' if len(partitions) > 1 else ''}{_format_partitions(partitions)}"
        for share, partitions in holders.items()
    )


def _format_partitions(partitions: Sequence[int]) -> str:
    shown = [str(one) for one in partitions[:LINES_MAX]]
    if len(partitions) > LINES_MAX:
        shown.append(f"{len(partitions) - LINES_MAX} more")
    return ", ".join(shown) or "none"
