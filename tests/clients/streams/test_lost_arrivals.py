"""A task waits for moved state that is still to come, and not for lost state.

Method: the machine of one instance, real stores; changelogs are what the test says they are.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.clients.streams.changelog import MARK_HEADERS, arrived_mark, departed_mark
from anabranch.clients.streams.changelog_bounds import ChangelogBounds
from anabranch.clients.streams.task_effects import Effect, Follow, Open, Resume
from anabranch.clients.streams.task_id import TaskId
from anabranch.clients.streams.task_state import State
from anabranch.protocol.lineage import KeyEpoch
from anabranch.protocol.records.record import Record
from tests.clients.streams.test_task_machine import GROWN, ID, Instance, place

GIVER, TAKER = TaskId(0, 0), TaskId(0, 2)
"""In GROWN partition 2 gets its keys from partition 0, at generation 1."""


class Resized(Instance):
    """An instance with the task that takes keys; the giver's is elsewhere, or here, too."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.view.lineages["in"] = GROWN
        self.ends = {0: 4, 2: 6}

    def take(self, *, start: int) -> None:
        """Have the task of partition 2 on a changelog that begins at `start` and has nothing beyond that."""
        self.assign(2)
        self.reads(2, 0, KeyEpoch(2, 1))
        self.ends[2] = start
        self.restore_all(start)

    def restore_all(self, start: int) -> None:
        """Look up all bounds that are wanted."""
        tasks = self.machine.is_without_target(self.view)
        checkpoints = self.machine.restore_targets.checkpoints(tasks)
        bounds = {
            one: ChangelogBounds(ID, start if one.partition == 2 else 0, self.ends[one.partition])
            for one in checkpoints
        }
        self.carry_out(self.machine.aim(self.view, tasks, checkpoints, bounds))

    def logged(self, partition: int, mark: tuple[bytes, bytes]) -> None:
        """A mark is read from the changelog of a task."""
        at = self[partition].state_manager.checkpoint_sum
        self[partition].state_manager.restore("counts", [Record(at, 0, *mark, MARK_HEADERS)], at + 1)
        self.ends[partition] = max(self.ends[partition], at + 1)

    def look(self) -> list[Effect]:
        """What a pass of the restorer does about lost arrivals."""
        return self.carry_out(self.machine.find_lost_arrivals(self.view))


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Resized]:
    made = Resized(tmp_path)
    yield made
    made.close()


def test_arrival_missing_in_changelog_after_hand_over_is_not_awaited(
    one: Resized, caplog: pytest.LogCaptureFixture
) -> None:
    one.take(start=6)
    assert one[2].state_manager.restored
    assert one.release() == []
    assert one.look() == [Open(GIVER, State.STANDBY), Follow()]
    assert not one[0].warming, "the group would rebalance for a copy that it has not asked for"
    assert one.look() == [] == one.release(), "the copy has nothing yet"
    one.logged(0, departed_mark(1))
    one.look()
    assert one[2].state_manager.targets is None, "the mark may stand beyond what was the end when its task was restored"
    one.restore_all(6)
    with caplog.at_level(logging.WARNING):
        one.look()
    assert "0_2: the state that came from partition 0 at generation 1 was deleted" in caplog.text
    assert one.release() == [Resume([place(2)]), Follow()]


def test_late_arrival_in_changelog_is_read(one: Resized, caplog: pytest.LogCaptureFixture) -> None:
    one.take(start=6)
    one.look()
    one.logged(0, departed_mark(1))
    one.look()
    one.ends[2] = 7
    one.restore_all(6)
    one.look()
    assert one.release() == []
    one.logged(2, arrived_mark(0, 1))
    one.look()
    assert one.release() == [Resume([place(2)]), Follow()]
    assert "was deleted" not in caplog.text


def test_pending_arrival_is_awaited(one: Resized) -> None:
    one.take(start=6)
    one.look()
    one.logged(0, departed_mark(0))
    for _ in range(3):
        assert one.look() == [] == one.release()
        one.restore_all(6)


def test_task_with_complete_changelog_waits_and_copies_nothing(one: Resized) -> None:
    one.take(start=0)
    assert one[2].state_manager.restored
    assert one.look() == [] == one.release()


def test_lost_arrival_is_not_concluded_during_commit(one: Resized) -> None:
    """The giver's mark may be part of the transaction, and be aborted."""
    one.take(start=6)
    one.look()
    one.logged(0, departed_mark(1))
    one.machine.committing = True
    one.look()
    assert one[2].state_manager.targets is not None
