"""A shared record has one member at a time and is completed once, under crashes; planted bugs are noticed.

Method: schedules of `sharing`, as they are and with one bug in the product each. `python -m tests.sim.sharing` runs
many.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.broker.coordinators.share_groups import share_heartbeat
from anabranch.broker.coordinators.share_partitions.in_flight import InFlight, RecordState
from anabranch.broker.coordinators.share_partitions.share_coordinator import ShareCoordinator, ShareShard
from anabranch.broker.coordinators.share_partitions.share_partition import SharePartition
from anabranch.broker.coordinators.share_partitions.share_persister import SharePersister
from anabranch.broker.coordinators.share_partitions.share_state import ShareState
from anabranch.broker.coordinators.share_partitions.shared_partitions import SharedPartitions
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.cases import examples
from tests.sim.sharing import FAULTS, play

SCHEDULES = examples(3, costly=6)
SCHEDULES_OF_A_BUG = 30


def test_every_record_is_acknowledged_once_under_failures() -> None:
    fired: Counter[str] = Counter()
    for seed in range(SCHEDULES):
        _, violations, happened = play(seed)
        assert violations == [], f"repeat with: python -m tests.sim.sharing {seed}"
        fired += happened
    assert fired["accepted"] > 80 * SCHEDULES
    assert fired["handed out again"] > 15 * SCHEDULES
    assert fired["topic grows"]
    assert sum(times for what, times in fired.items() if what.startswith("died: ")) > SCHEDULES / 2


Bug = Callable[[pytest.MonkeyPatch], None]


def what_is_held_is_free(patch: pytest.MonkeyPatch) -> None:
    free = property(lambda one: one.state in (RecordState.AVAILABLE, RecordState.ACQUIRED) and one.becomes is None)
    patch.setattr(InFlight, "free", free)


def leaders_forget_what_was_stored(patch: pytest.MonkeyPatch) -> None:
    product = SharePersister.read

    async def read(persister: SharePersister, key: Any, leader_epoch: int) -> ShareState:
        found = await product(persister, key, leader_epoch)
        found.batches = []
        return found

    patch.setattr(SharePersister, "read", read)


def nothing_is_fenced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ShareState, "fence", lambda state, **epochs: None)
    patch.setattr(ShareShard, "follow", lambda shard, *request: None)


def locks_never_run_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SharePartition, "expire", lambda partition, now_ms: [])


def the_start_is_where_the_last_leader_says(patch: pytest.MonkeyPatch) -> None:
    """Found by these schedules."""
    product = ShareState.take

    def take(state: ShareState, start_offset: int, *change: Any) -> None:
        state.start_offset = start_offset
        product(state, start_offset, *change)

    patch.setattr(ShareState, "take", take)


def a_coordinator_trusts_its_topics(patch: pytest.MonkeyPatch) -> None:
    """Found by these schedules: a new coordinator knows no topics."""
    product = ShareCoordinator._find

    def known(coordinator: ShareCoordinator, key: Any) -> Any:
        if coordinator._metadata.topic_name(key.topic_id) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return product(coordinator, key)

    patch.setattr(ShareCoordinator, "_find", known)


def a_lost_answer_is_not_said_again(patch: pytest.MonkeyPatch) -> None:
    """Found by these schedules: the member's heartbeat repeats its request, and gets nothing."""
    product = share_heartbeat._update_member

    def stay(decision: Any, request: Any, sender: Any) -> None:
        before = decision.group.members.get(request.member_id)
        product(decision, request, sender)
        if request.member_epoch and before is not None and decision.answer.assignment == before.assigned:
            decision.answer = dataclasses.replace(decision.answer, assignment=None)

    patch.setattr(share_heartbeat, "_update_member", stay)


def a_change_is_stored_when_it_is_asked_for(patch: pytest.MonkeyPatch) -> None:
    """A member gets a success before the coordinator has stored the change."""
    product = SharedPartitions._store

    async def store(partitions: SharedPartitions, one: Any, batches: Any) -> None:
        one.shared.complete(batches)
        partitions._background.spawn(late(partitions, one, batches))

    async def late(partitions: SharedPartitions, one: Any, batches: Any) -> None:
        try:
            await product(partitions, one, batches)
        except KafkaError:
            return

    patch.setattr(SharedPartitions, "_store", store)


NO_END = "every record is dealt with did not happen"
DEPOSED = ("broker freezes", "zookeeper cut off", "link cut")
UNHEARD = ("share coordinator dies", "dies at a step", "connections reset")


@pytest.mark.costly
@pytest.mark.parametrize(
    ("bug", "faults", "first", "shown_by"),
    [
        (what_is_held_is_free, FAULTS, 0, "a44"),
        (leaders_forget_what_was_stored, FAULTS, 1, "a42"),
        (nothing_is_fenced, DEPOSED, 24, "a45"),
        (locks_never_run_out, FAULTS, 0, NO_END),
        (the_start_is_where_the_last_leader_says, UNHEARD, 16, "a47"),
        (a_coordinator_trusts_its_topics, FAULTS, 4, "a44"),
        (a_lost_answer_is_not_said_again, FAULTS, 1, NO_END),
        (a_change_is_stored_when_it_is_asked_for, FAULTS, 18, "a42"),
    ],
)
def test_planted_bug_is_caught(
    bug: Bug, faults: tuple[str, ...], first: int, shown_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the first seed no longer shows it, set `first` to one that does."""
    bug(monkeypatch)
    for seed in range(first, first + SCHEDULES_OF_A_BUG):
        _, violations, _ = play(seed, faults=faults)
        if shown_by in "\n".join(violations):
            return
    pytest.fail(f"{SCHEDULES_OF_A_BUG} schedules did not show it")
