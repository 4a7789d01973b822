"""Keys keep their order for stock members under crashes, and planted bugs are noticed.

Method: schedules of `growing`, as they are and with one bug in the product each. `python -m tests.sim.growing` runs
many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from anabranch.broker.coordinators.classic_groups.rebalance import without_closed as product_strips
from anabranch.broker.coordinators.gates.gated_topic import GatedTopic
from anabranch.broker.coordinators.groups.group_gates import GroupGates
from tests.sim.growing import FAULTS, play

SCHEDULES = 3
LIMIT = 30


def test_stock_consumers_keep_key_order() -> None:
    fired: Counter[str] = Counter()
    for seed in range(SCHEDULES):
        _, violations, happened = play(seed)
        assert violations == [], f"repeat with: python -m tests.sim.growing {seed}"
        fired += happened
    assert fired["withheld"] > 10
    assert fired["opened"] > 1


def caught(faults: Sequence[str]) -> list[str]:
    """The violations of the first schedule that has any."""
    for seed in range(1, 1 + LIMIT):
        _, violations, _ = play(seed, faults=faults)
        if violations:
            return violations
    return []


Bug = Callable[[pytest.MonkeyPatch], None]


def nothing_is_withheld(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GatedTopic, "withheld", lambda topic, committed: {})


def members_with_gates_are_everybody(patch: pytest.MonkeyPatch) -> None:
    def strips(member: Any, assignment: bytes, assignable: Any) -> Any:
        return product_strips(member, assignment, {})

    patch.setattr("anabranch.broker.coordinators.classic_groups.rebalance.without_closed", strips)


def what_is_half_read_is_done(patch: pytest.MonkeyPatch) -> None:
    product = GatedTopic._end
    patch.setattr(GatedTopic, "_end", lambda topic, key_epoch: min(product(topic, key_epoch), 1))


def commits_open_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupGates, "on_offsets_committed", lambda gates, slot, partitions: None)
    patch.setattr("anabranch.broker.coordinators.groups.group_gates.AGAIN_S", 10_000.0)


def the_next_coordinator_does_not_look(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupGates, "on_loaded", lambda gates, slot: None)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("bug", "shown_by", "faults"),
    [
        (nothing_is_withheld, "was first delivered after", FAULTS),
        (members_with_gates_are_everybody, "was first delivered after", FAULTS),
        (what_is_half_read_is_done, "was first delivered after", FAULTS),
        (commits_open_nothing, "every record is handed out did not happen", FAULTS),
        (the_next_coordinator_does_not_look, "every record is handed out did not happen", ["coordinator dies"]),
    ],
)
def test_planted_bug_is_caught(bug: Bug, shown_by: str, faults: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    assert shown_by in "\n".join(caught(faults))
