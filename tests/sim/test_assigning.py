"""Planted bugs of KIP-848 groups are noticed by their scenario."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from anabranch.broker.coordinators.consumer_groups import target_assignment
from anabranch.broker.coordinators.consumer_groups.consumer_group import ConsumerGroup
from anabranch.broker.coordinators.consumer_groups.member import STABLE, Member
from anabranch.broker.coordinators.groups.consumer_group_requests import ConsumerGroupRequests
from tests.sim.assigning import AssigningSchedule

Bug = Callable[[pytest.MonkeyPatch], None]


def everything_is_free(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConsumerGroup, "free_of", lambda group, topic, partitions: partitions)


def targets_forget_a_partition(patch: pytest.MonkeyPatch) -> None:
    product = target_assignment.compute

    def compute(*arguments: object) -> object:
        computed = dict(product(*arguments))  # type: ignore[arg-type]
        return {
            member_id: {topic: indexes - {1} for topic, indexes in target.items() if indexes - {1}}
            for member_id, target in computed.items()
        }

    patch.setattr(target_assignment, "compute", compute)


def the_next_coordinator_sets_no_timers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConsumerGroupRequests, "on_loaded", lambda requests, slot: None)


def revoking_partitions_are_let_go(patch: pytest.MonkeyPatch) -> None:
    product = Member.current

    def current(member: Member) -> object:
        return product(dataclasses.replace(member, revoking={}, state=STABLE))

    patch.setattr(Member, "current", current)


SCHEDULES = 12


@pytest.mark.costly
@pytest.mark.parametrize(
    ("bug", "first", "shown_by"),
    [
        (everything_is_free, 0, "A40"),
        (revoking_partitions_are_let_go, 7, "A22"),
        (targets_forget_a_partition, 0, "every record is delivered and committed did not happen"),
        (the_next_coordinator_sets_no_timers, 1, "every record is delivered and committed did not happen"),
    ],
)
def test_planted_bug_is_caught(bug: Bug, first: int, shown_by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The schedule that caught it last is tried first."""
    bug(monkeypatch)
    for seed in range(first, first + SCHEDULES):
        if shown_by in "\n".join(AssigningSchedule(seed).run().violations):
            return
    pytest.fail(f"{SCHEDULES} schedules did not show it")
