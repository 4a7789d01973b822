"""A store that cannot be restored starts empty, or ends the instance; other stores are unaffected.

Method: one task on a real disk; the answers about its changelog are made up, late ones included.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.clients.streams.changelog import MARK_HEADERS, Marks, arrived_mark
from anabranch.clients.streams.changelog_bounds import ChangelogBounds
from anabranch.clients.streams.config import RESET_EARLIEST, RESET_NONE, StreamsConfig
from anabranch.clients.streams.restore_targets import RestoreTargets
from anabranch.clients.streams.streams_errors import StreamsError
from anabranch.clients.streams.task_disk import TaskDisk
from anabranch.clients.streams.task_effects import Seek
from anabranch.clients.streams.task_id import TaskId
from anabranch.clients.streams.task_state import State
from anabranch.clients.streams.tasks import Task
from anabranch.protocol.topic_partition import TopicPartition
from tests.clients.streams.changelog_records import logged, row
from tests.clients.streams.world import counts

ID, OTHER = b"i" * 16, b"o" * 16
CHANGELOG = TopicPartition("app-counts-changelog", 3)


def make(directory: Path, state: State = State.CATCHING_UP) -> Task:
    part = counts().build("app").subtopologies[0]
    return Task(TaskId(0, 3), "app", part, TaskDisk(directory, part.stores), state=state)


@pytest.fixture
def task(tmp_path: Path) -> Iterator[Task]:
    """One key and a mark are restored, up to offset 3, from the changelog with the id ID."""
    made = make(tmp_path / "task")
    key, value = arrived_mark(1, 2)
    made.state_manager.restore("counts", [logged(0, 0, b"k", b"1", ()), logged(1, 0, key, value, MARK_HEADERS)], 3)
    made.state_manager.check({"counts": ID})
    yield made
    made.close()


def targets(policy: str = RESET_EARLIEST) -> RestoreTargets:
    return RestoreTargets(
        StreamsConfig(
            application_id="app", bootstrap_servers="nowhere:1", state_dir=Path(), changelog_auto_offset_reset=policy
        )
    )


def aim(
    task: Task,
    start: int,
    end: int,
    *,
    policy: str = RESET_EARLIEST,
    topic_id: bytes = ID,
    before: int | None = None,
    committing: bool = False,
) -> list[Seek]:
    """The changelog was looked up when the task's checkpoint was `before`."""
    one = targets(policy)
    checkpoints = one.checkpoints([task]) if before is None else {CHANGELOG: before}
    return one.aim(task, checkpoints, {CHANGELOG: ChangelogBounds(topic_id, start, end)}, committing=committing)


@pytest.mark.parametrize("policy", [RESET_EARLIEST, RESET_NONE])
def test_store_is_restored_from_checkpoint_to_end_of_changelog(task: Task, policy: str) -> None:
    assert aim(task, 1, 9, policy=policy) == []
    assert (task.state_manager.targets, task.state_manager.unchecked) == ({"counts": 9}, False)
    assert task.state_manager.has_state("counts")


@pytest.mark.parametrize(
    ("start", "end", "topic_id", "reason"),
    [
        (6, 6, ID, "from offset 3 to 5 were deleted"),
        (0, 2, ID, "ends at offset 2"),
        (0, 9, OTHER, "created again"),
        (5, 9, OTHER, "created again"),
    ],
)
def test_store_that_changelog_cannot_restore_is_reset_with_warning(
    task: Task, start: int, end: int, topic_id: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert aim(task, start, end, topic_id=topic_id) == [Seek(CHANGELOG, start)]
    assert reason in caplog.text
    assert f"store counts begins anew at offset {start} of {CHANGELOG}" in caplog.text
    assert (task.state_manager.has_state("counts"), task.state_manager.marks()) == (False, [Marks({}, -1)])
    assert (task.state_manager.targets, task.state_manager.checkpoint_sum, task.state_manager.restored) == (
        {"counts": end},
        start,
        start == end,
    )
    assert (task.state_manager.disk.checkpoint("counts"), task.state_manager.disk.topic_id("counts")) == (
        start,
        topic_id,
    )


def test_store_that_lacks_only_a_transaction_marker_keeps_its_state(tmp_path: Path) -> None:
    task = make(tmp_path)
    aim(task, 0, 0)
    task.run()
    task.stores["counts"].put(b"k", b"1")
    task.on_committed({"counts": [0]}, transactional=True)
    task.catch_up()
    assert aim(task, 2, 2, policy=RESET_NONE) == [Seek(CHANGELOG, 2)], "nothing can be fetched at the marker"
    assert (task.state_manager.restored, task.state_manager.checkpoint_sum, task.stores["counts"].get(b"k")) == (
        True,
        2,
        b"1",
    )
    task.close()


@pytest.mark.parametrize(("start", "end", "topic_id"), [(6, 6, ID), (0, 2, ID), (0, 9, OTHER)])
def test_store_that_must_not_be_reset_ends_instance_and_is_kept(
    task: Task, start: int, end: int, topic_id: bytes
) -> None:
    with pytest.raises(StreamsError, match=r"0_3: the state of store counts .* changelog_auto_offset_reset=earliest"):
        aim(task, start, end, topic_id=topic_id, policy=RESET_NONE)
    assert task.state_manager.has_state("counts")
    assert (task.state_manager.disk.checkpoint("counts"), task.state_manager.disk.topic_id("counts")) == (3, ID)


def test_empty_store_starts_at_changelog_start_under_any_policy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    task = make(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert aim(task, 6, 6, policy=RESET_NONE) == [Seek(CHANGELOG, 6)]
    assert "from offset 0 to 5 were deleted from the changelog; store counts begins empty" in caplog.text
    assert task.state_manager.restored
    task.close()


@pytest.mark.parametrize("policy", [RESET_EARLIEST, RESET_NONE])
def test_bounds_from_before_arrival_of_keys_do_not_reset_store(task: Task, policy: str) -> None:
    """A resize copies keys to the store while the end of its changelog is looked up."""
    task.state_manager.take_over("counts", {b"new": row(b"1", 0)}, {}, [3])
    assert aim(task, 0, 3, policy=policy, before=3) == []
    assert (task.state_manager.targets, task.state_manager.restored) == ({"counts": 3}, True)
    assert task.stores["counts"].get(b"new") == b"1"


def test_store_changed_since_lookup_is_looked_up_again_before_reset(task: Task) -> None:
    task.state_manager.take_over("counts", {b"new": row(b"1", 0)}, {}, [3])
    assert aim(task, 4, 9, before=3) == []
    assert (task.state_manager.targets, task.state_manager.has_state("counts")) == (None, True)


def test_no_store_is_reset_during_commit(task: Task) -> None:
    assert aim(task, 0, 2, committing=True) == []
    assert (task.state_manager.targets, task.state_manager.has_state("counts")) == (None, True)
    assert aim(task, 0, 9, committing=True) == []
    assert task.state_manager.targets == {"counts": 9}


def test_task_whose_changelog_has_no_leader_has_no_target(task: Task) -> None:
    one = targets()
    assert one.aim(task, one.checkpoints([task]), {}, committing=False) == []
    assert task.state_manager.targets is None


@pytest.mark.parametrize(
    ("lost", "topic_ids", "doubted"),
    [
        ([], {}, False),
        ([], {CHANGELOG.topic: ID}, False),
        ([CHANGELOG], {}, True),
        ([], {CHANGELOG.topic: OTHER}, True),
    ],
)
def test_store_is_checked_when_its_reader_finds_nothing_or_another_topic(
    task: Task, lost: list[TopicPartition], topic_ids: dict[str, bytes], doubted: bool
) -> None:
    aim(task, 0, 9)
    assert targets().doubt([task], lost, topic_ids) is doubted
    assert not targets().doubt([task], lost, topic_ids), "metadata would be refreshed in every pass"
    assert (task.state_manager.unchecked, task.state_manager.targets is None) == (doubted, doubted)
    assert aim(task, 0, 9) == ([Seek(CHANGELOG, 3)] if doubted else []), "the reader stands where it found nothing"
    assert not task.stores["counts"].doubted


def test_store_of_earlier_version_records_topic_id(tmp_path: Path) -> None:
    task = make(tmp_path, State.STANDBY)
    task.state_manager.restore("counts", [logged(0, 0, b"k", b"1", ())], 3)
    assert task.state_manager.unchecked
    assert aim(task, 0, 9) == []
    assert (task.state_manager.unchecked, task.state_manager.targets) == (False, None)
    task.close()
    again = make(tmp_path)
    assert again.stores["counts"].topic_id == ID
    assert again.state_manager.checkpoint_sum == 3
    again.close()
