"""Members whose removal the journal refuses stay, and are removed later."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.broker.coordinators.consumer_groups.timers import Timer, Timers
from anabranch.broker.coordinators.groups.member_removal import RETRY_MS, removing
from anabranch.protocol.errors import ErrorCode, KafkaError


def group_of(*member_ids: str) -> tuple[Any, Any, list[Any]]:
    group = SimpleNamespace(group_id="g", members=dict.fromkeys(member_ids), timers=Timers())
    rescheduled: list[Any] = []
    return SimpleNamespace(reschedule=rescheduled.append), SimpleNamespace(group=group), rescheduled


EXPIRED = [(SimpleNamespace(member_id=one), Timer.SESSION) for one in ("a", "b")]


def test_failed_removal_of_members_is_retried_after_a_delay() -> None:
    runtime, slot, rescheduled = group_of("a")  # b has left meanwhile
    with removing(runtime, slot, EXPIRED, 1000):
        raise KafkaError(ErrorCode.NOT_COORDINATOR)
    assert slot.group.timers.pop_due(1000 + RETRY_MS - 1) == []
    assert slot.group.timers.pop_due(1000 + RETRY_MS) == [("a", Timer.SESSION)]
    assert rescheduled == [slot]


@pytest.mark.parametrize("error", [None, LookupError("a bug")])
def test_timers_of_removed_members_are_not_reset(error: Exception | None) -> None:
    runtime, slot, rescheduled = group_of()
    try:
        with removing(runtime, slot, EXPIRED, 1000):
            if error is not None:
                raise error
    except LookupError as raised:
        assert raised is error
    assert slot.group.timers.pop_due(10_000) == [] and rescheduled == [slot]
