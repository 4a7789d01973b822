"""The judgement of a run on real processes: by the checkers that have data, by members' own logs, and by the judge.

Records that were stored in or after the first generation with fewer partitions are not held against the order of other
projects' members: a merge breaks it for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from anabranch.chaos import checkers, second_opinion
from anabranch.chaos.clients import TOPIC
from anabranch.chaos.history import History
from anabranch.chaos.members import MemberGroup
from anabranch.chaos.side_topic import SideTopic
from anabranch.chaos.verdict import SEEN_HERE


def judge(history: History, groups: Sequence[MemberGroup], sides: Sequence[SideTopic] = ()) -> list[str]:
    """Return the failures of the run, and every violation that the checkers find."""
    found = [f"run: {line}" for line in history.failures]
    for name, check in checkers.CHECKERS.items():
        if name.split()[0] in SEEN_HERE:
            found += [f"{name}: {line}" for line in check(history)]
    merged = merged_records(history) if groups else frozenset()
    for one in groups:
        found += one.judge(history.sends, merged)
    for side in sides:
        found += side.judge(history.sends)
    return found


def judge_again(history: History, groups: Sequence[MemberGroup]) -> list[str]:
    """Return every violation that the judge finds, which shares no code with the checkers."""
    found, merged = second_opinion.judge_again(history), merged_records(history) if groups else frozenset()
    for one in groups:
        sends = [send for send in history.sends if send.value not in merged]
        deliveries = [row for row in one.deliveries if row.value not in merged]
        found += second_opinion.judge_members(one.name, TOPIC, sends, deliveries)
    return found


def merged_records(history: History) -> frozenset[str]:
    """Return the records stored in or after the first generation with fewer partitions."""
    lineage = history.lineage(TOPIC)
    steps = () if lineage is None else pairwise(lineage.history)
    first = next((generation for (_, before), (generation, count) in steps if count < before), None)
    if first is None:
        return frozenset()
    found = history.stored
    return frozenset(one.value for one in found if history.generation_of(one.place, one.leader_epoch) >= first)
