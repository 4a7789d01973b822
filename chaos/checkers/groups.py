"""Compares reads and commits of group members: no gap within a run, no commit lost or by a zombie.

The definitions and names are those of Jepsen's Kafka workload. A run is what one member reads of a partition between
two seeks; a rebalance, which may repeat uncommitted records, starts another.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from anabranch.chaos.checkers.shared import Checker, at, first_deliveries, reset_events, stored_offsets
from anabranch.chaos.history import Commit, Delivery, History, OffsetsReset, Place, ReadStart


def a7_poll_skip(history: History) -> Iterator[str]:
    """A member skips stored records of a partition within one assignment."""
    offsets = stored_offsets(history)
    for run, start in _runs(history):
        expected = start
        for delivery in run:
            there = offsets.get(delivery.place, [])
            skipped = there[bisect_left(there, expected) : bisect_left(there, delivery.offset)]
            if expected >= 0 and skipped:
                where = at(delivery.place, delivery.offset)
                yield f"{delivery.consumer} jumps from {expected} to {where} over {skipped[:5]}"
            expected = delivery.offset + 1


def a9_nonmonotonic_poll(history: History) -> Iterator[str]:
    """A member goes back in a partition within one assignment."""
    for run, start in _runs(history):
        expected = start
        for delivery in run:
            if delivery.offset < expected:
                yield f"{delivery.consumer} goes back from {expected} to {at(delivery.place, delivery.offset)}"
            expected = delivery.offset + 1


def a21_commit_lost(history: History) -> Iterator[str]:
    """A member starts below an acknowledged commit, without a reset of the group's offsets.

    In the generation of the commit, only the committing member is checked: while a coordinator dies, two members may
    have generations of one number.
    """
    committed: dict[Place, tuple[int, int, str]] = {}
    events: list[tuple[int, Commit | ReadStart | OffsetsReset]] = [
        (one.acked_order, one) for one in history.commits if one.outcome == "ok"
    ]
    events += [(one.order, one) for one in history.read_starts]
    events += reset_events(history)
    for _, event in sorted(events, key=lambda one: one[0]):
        if isinstance(event, OffsetsReset):
            for place in event.offsets:
                committed.pop(place, None)
            continue
        if isinstance(event, Commit):
            for place, offset in event.offsets.items():
                committed[place] = max(
                    committed.get(place, (-1, -1, "")), (event.group_generation, offset, event.consumer)
                )
            continue
        generation, there, committer = committed.get(event.place, (-1, -1, ""))
        later = event.group_generation > generation
        again = event.group_generation == generation and event.consumer == committer
        if event.offset < there and (later or again):
            yield f"{event.consumer} begins at {at(event.place, event.offset)}; {there} was committed"


def a22_zombie_commit(history: History) -> Iterator[str]:
    """A commit is acknowledged to a superseded generation of the group.

    A member that reads in a generation has joined it, so the coordinator had left the previous one. In KIP-848 groups
    each partition has its own epoch: no member commits a partition that another member has started to read at a later
    epoch.
    """
    orders: dict[Place | None, list[int]] = defaultdict(list)
    newest: dict[Place | None, list[int]] = defaultdict(list)
    for one in sorted(history.read_starts, key=lambda one: one.order):
        scope = None if history.barriers else one.place
        before = newest[scope]
        orders[scope].append(one.order)
        before.append(max(one.group_generation, before[-1] if before else -1))
    for commit in history.commits:
        for scope in [None] if history.barriers else list(commit.offsets):
            at_hand = bisect_left(orders[scope], commit.order) - 1
            if commit.outcome == "ok" and at_hand >= 0 and newest[scope][at_hand] > commit.group_generation:
                yield (
                    f"{commit.consumer} commits {dict(commit.offsets)} in generation {commit.group_generation}, "
                    f"when generation {newest[scope][at_hand]} had begun"
                )


def a23_skipped_delivery(history: History) -> Iterator[str]:
    """Committed beyond records that no member received."""
    offsets = stored_offsets(history)
    first = first_deliveries(history)
    done: dict[Place, int] = {}
    for commit in sorted(history.commits, key=lambda one: one.order):
        for place, offset in commit.offsets.items():
            there = offsets.get(place, [])
            start = done.get(place, 0)
            for one in there[bisect_left(there, start) : bisect_left(there, offset)]:
                if first.get((place, one), commit.order + 1) > commit.order:
                    yield f"{commit.consumer} commits {at(place, offset)}, and {one} was never delivered"
            done[place] = max(start, offset)


def a24_double_ownership(history: History) -> Iterator[str]:
    """Two members get one partition's records in one generation of the group.

    A static member that was replaced is another one: its successor continues in the same generation.
    """
    owners: dict[tuple[Place, int], str] = {}
    replaced: set[tuple[Place, int, str]] = set()
    for one in history.deliveries:
        key = (one.place, one.group_generation)
        owner = owners.setdefault(key, one.consumer)
        if owner == one.consumer:
            continue
        succeeds = history.instances.get(owner, owner) == history.instances.get(one.consumer)
        if not succeeds or (*key, one.consumer) in replaced:
            yield f"{one.place} in generation {one.group_generation} is read by {owner} and {one.consumer}"
        replaced.add((*key, owner))
        owners[key] = one.consumer


def a40_late_delivery(history: History) -> Iterator[str]:
    """A member delivers a record of a partition that another one had started to read in a later generation.

    Repetitions count: the other may be past newer records of the same key by then, here or elsewhere.
    """
    newest: dict[Place, ReadStart] = {}
    reported: set[tuple[str, Place]] = set()
    events: list[tuple[int, Delivery | ReadStart]] = [(one.order, one) for one in history.read_starts]
    events += [(one.order, one) for one in history.deliveries]
    for _, event in sorted(events, key=lambda one: one[0]):
        owner = newest.get(event.place)
        if isinstance(event, ReadStart):
            if owner is None or owner.group_generation <= event.group_generation:
                newest[event.place] = event
            continue
        if owner is None or owner.consumer == event.consumer or owner.group_generation <= event.group_generation:
            continue
        if (event.consumer, event.place) not in reported:
            reported.add((event.consumer, event.place))
            where = at(event.place, event.offset)
            yield (
                f"{event.consumer} of generation {event.group_generation} hands out {where}, "
                f"and {owner.consumer} of generation {owner.group_generation} reads that partition"
            )


def a48_commit_taken_back(history: History) -> Iterator[str]:
    """A commit moves the group back behind a commit that was acknowledged, in an earlier generation, before it was
    sent.

    The group's offsets were not reset in between.
    """
    known: dict[Place, tuple[int, int, str]] = {}
    done = [one for one in history.commits if one.outcome == "ok"]
    events: list[tuple[int, bool, Commit | OffsetsReset]] = [(one.order, False, one) for one in done]
    events += [(one.acked_order, True, one) for one in done]
    events += [(order, True, one) for order, one in reset_events(history)]
    for _, settled, event in sorted(events, key=lambda one: one[0]):
        if isinstance(event, OffsetsReset):
            for place in event.offsets:
                known.pop(place, None)
            continue
        for place, offset in event.offsets.items():
            generation, there, consumer = known.get(place, (-1, -1, ""))
            if settled:
                known[place] = max(known.get(place, (-1, -1, "")), (event.group_generation, offset, event.consumer))
            elif offset < there and event.group_generation > generation:
                yield f"{event.consumer} commits {at(place, offset)}, and {consumer} had committed {there}"


def _runs(history: History) -> Iterator[tuple[list[Delivery], int]]:
    """Yield the deliveries of each run, in order, with its start."""
    starts = {(one.consumer, one.run, one.place): one.offset for one in history.read_starts}
    runs: dict[tuple[str, int, Place], list[Delivery]] = defaultdict(list)
    for delivery in history.deliveries:
        runs[delivery.consumer, delivery.run, delivery.place].append(delivery)
    for key, run in runs.items():
        yield run, starts.get(key, -1)


CHECKERS: Final[dict[str, Checker]] = {
    "A7 poll-skip": a7_poll_skip,
    "A9 nonmonotonic-poll": a9_nonmonotonic_poll,
    "A21 commit-lost": a21_commit_lost,
    "A22 zombie-commit": a22_zombie_commit,
    "A23 skipped-delivery": a23_skipped_delivery,
    "A24 double-ownership": a24_double_ownership,
    "A40 late-delivery": a40_late_delivery,
    "A48 commit-taken-back": a48_commit_taken_back,
}
