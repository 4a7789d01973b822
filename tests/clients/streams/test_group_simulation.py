"""Three hundred schedules of churn without a violation, and every planted bug noticed."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.clients.streams import group_assignment, streams_partition_assignor
from anabranch.clients.streams.client_state import ClientState
from anabranch.clients.streams.group import StreamsProcess
from anabranch.clients.streams.movements import Movements
from anabranch.clients.streams.streams_partition_assignor import StreamsPartitionAssignor
from tests.clients.streams.group_simulation import Violation, play

SCHEDULES = 300
NOTICED_WITHIN = 100


@pytest.mark.costly
def test_three_hundred_schedules_of_a_streams_group() -> None:
    seen: Counter[str] = Counter()
    for seed in range(SCHEDULES):
        try:
            seen += play(seed)
        except Violation as violation:
            pytest.fail(f"python -m tests.clients.streams {seed}: {violation}")
    assert seen["generations"] > 3000
    for what in ("waiting", "probing", "warm-ups", "mixed versions", "moves of running tasks", "unknown ends"):
        assert seen[what] > SCHEDULES / 10, f"hardly any {what}: nothing was shown"


def without_probing(assign: Callable[..., Any]) -> Callable[..., Any]:
    def assigned(*arguments: Any) -> Any:
        *first, assignor, config, now_ms, racks, removed = arguments
        blind = lambda *asked: dataclasses.replace(assignor(*asked), probing=False)  # noqa: E731
        return assign(*first, blind, config, now_ms, racks, removed)

    return assigned


PLANTED: list[tuple[str, Any, str, Any, str]] = [
    ("tasks are given before they are given up", group_assignment._Writer, "_is_owned_elsewhere", lambda *_: False,
     "is given to"),
    ("warm-ups without end", Movements, "_warm_up", lambda _: True, "warm-ups, and no more than"),
    ("lags are ignored", ClientState, "is_caught_up", lambda *_: True, "is to move to where"),
    ("nobody looks again", streams_partition_assignor, "assign_group",
     without_probing(group_assignment.assign_group), "for nothing"),
    ("a version is kept for ever", StreamsPartitionAssignor, "_change_version", lambda *_: False, "speaks version"),
    ("unknown lags first, as in Kafka", StreamsProcess, "had",
     lambda self, client: {
         member: sorted(sums.keys() & client.lags.keys(), key=lambda task: (client.lags[task], task))
         for member, sums in self.sums_by_member.items()
     }, "no rest"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "where", "what", "mistake", "complaint"), PLANTED, ids=[one[0] for one in PLANTED])
def test_planted_defects_are_detected(
    name: str, where: Any, what: str, mistake: Any, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, what, mistake)
    with pytest.raises(Violation, match=complaint):
        for seed in range(NOTICED_WITHIN):
            play(seed)
