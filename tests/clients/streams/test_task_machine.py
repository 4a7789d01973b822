"""One state determines whether a task may process, commit or hand over; late responses change nothing.

Method: the real machine and real stores on disk; what a consumer knows is set (`RequestView`), and effects are looked
at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from anabranch.clients.consumer.consumer_record import ConsumerRecord
from anabranch.clients.streams.assignment_info import AssignorError
from anabranch.clients.streams.changelog import MARK_HEADERS, arrived_mark
from anabranch.clients.streams.changelog_bounds import ChangelogBounds
from anabranch.clients.streams.config import StreamsConfig
from anabranch.clients.streams.context import Clock, Context, Handler, Timer
from anabranch.clients.streams.serdes import BYTES
from anabranch.clients.streams.streams_errors import StreamsError
from anabranch.clients.streams.streams_partition_assignor import AssignedTasks
from anabranch.clients.streams.subscription_info import RUNNING
from anabranch.clients.streams.task_disk import TaskDisk
from anabranch.clients.streams.task_effects import Close, Commit, Effect, Follow, Open, Pause, Rejoin, Resume, Seek
from anabranch.clients.streams.task_id import TaskId
from anabranch.clients.streams.task_machine import TaskMachine
from anabranch.clients.streams.task_state import State
from anabranch.clients.streams.tasks import Output, Task
from anabranch.clients.streams.topology import Topology
from anabranch.protocol.hashing import murmur2
from anabranch.protocol.lineage import KeyEpoch, Lineage
from anabranch.protocol.topic_partition import TopicPartition
from tests.clients.streams.changelog_records import logged
from tests.clients.streams.views import View
from tests.clients.streams.world import counts

GROWN = Lineage(2, [(0, 2), (1, 4)])
"""Keys go from 0 to 2, and from 1 to 3."""
SHRUNK = GROWN.resize(2, 2)
ID, OTHER_ID = b"i" * 16, b"o" * 16


def place(partition: int, topic: str = "in") -> TopicPartition:
    return TopicPartition(topic, partition)


def record(partition: int, key: bytes, *, generation: int = 0) -> ConsumerRecord:
    return ConsumerRecord("in", partition, 17, 0, key, b"", (), generation)


def counted(partition: int) -> TopicPartition:
    return place(partition, "app-counts-changelog")


def joining() -> Topology:
    topology = Topology()
    topology.stream("in").join(topology.table("other"), lambda row, other: row).to("out", value=BYTES)
    return topology


class Instance:
    """A machine, and a shell around it that reads and writes nothing but stores."""

    def __init__(self, directory: Path, topology: Topology | None = None, **settings: Any) -> None:
        config = StreamsConfig(application_id="app", bootstrap_servers="nowhere:1", state_dir=directory, **settings)
        self.directory, self.built = directory, (topology or counts()).build("app")
        self.machine = TaskMachine(config, self.built, {}, 0.0)
        self.view = View()

    def carry_out(self, effects: Iterable[Effect]) -> list[Effect]:
        done = list(effects)
        for effect in done:
            if isinstance(effect, Open):
                part = self.built.subtopologies[effect.task_id.subtopology]
                disk = TaskDisk(self.directory / str(effect.task_id), part.stores)
                self.machine.on_opened(Task(effect.task_id, "app", part, disk, state=effect.state))
            elif isinstance(effect, Close):
                effect.task.close()
        return done

    def assign(self, *active: int, standby: Sequence[int] = (), removed: Sequence[int] = ()) -> list[Effect]:
        self.machine.on_tasks(
            AssignedTasks(
                active={TaskId(0, one): [place(one)] for one in active},
                standby={TaskId(0, one): [place(one)] for one in standby},
                removed={TaskId(0, one) for one in removed},
                generation=self.view.generation,
            )
        )
        for topic in self.built.sources:
            for one in active:
                self.view.positions.setdefault(place(one, topic), -1)
        return self.carry_out(self.machine.take_tasks(self.view))

    def reads(self, partition: int, position: int, key_epoch: KeyEpoch | None = None, topic: str = "in") -> None:
        self.view.positions[place(partition, topic)] = position
        if key_epoch is not None:
            self.view.read_to[place(partition, topic)] = (self.view.lineages[topic], key_epoch)

    def complete(self, commit: Commit | None) -> None:
        """The commit has succeeded."""
        assert commit is not None
        for task in commit.tasks:
            written = {name: [store.checkpoint.offset] for name, store in task.stores.items() if store.changes}
            task.on_committed(written, transactional=True)
        self.machine.on_committed(commit, 1.0, handed_over=False)

    def aim(self) -> None:
        """All changelogs end where the stores are."""
        tasks = self.machine.is_without_target(self.view)
        checkpoints = self.machine.restore_targets.checkpoints(tasks)
        bounds = {one: ChangelogBounds(ID, 0, end) for one, end in checkpoints.items()}
        self.carry_out(self.machine.aim(self.view, tasks, checkpoints, bounds))

    def answer(self, start: int, end: int, *, topic_id: bytes = ID, before: int | None = None) -> list[Effect]:
        """The changelog of task 0 is this; its checkpoint was `before` when that was asked."""
        tasks = [self[0]]
        checkpoints = self.machine.restore_targets.checkpoints(tasks) if before is None else {counted(0): before}
        bounds = {counted(0): ChangelogBounds(topic_id, start, end)}
        return self.carry_out(self.machine.aim(self.view, tasks, checkpoints, bounds))

    def runs(self, *partitions: int) -> None:
        """Have tasks that process, on topics in which nothing was read."""
        self.assign(*partitions)
        for one in partitions:
            for topic in self.built.sources:
                lineage = self.view.lineages.get(topic)
                self.reads(one, 0, lineage.key_epochs(one)[0] if lineage else None, topic)
        self.aim()
        self.release()
        assert all(self[one].state is State.RUNNING for one in partitions)

    def release(self) -> list[Effect]:
        return self.carry_out(self.machine.release(self.view))

    def arrives(self, source: int, target: int, generation: int) -> None:
        """The mark of a partition that has handed over, in the changelog of another."""
        key, value = arrived_mark(source, generation)
        end = self[target].state_manager.checkpoint_sum
        self[target].state_manager.restore("counts", [logged(end, 0, key, value, MARK_HEADERS)], end + 1)

    def commit(self, now: float = 1.0, *, sent: bool = False) -> Commit | None:
        assert self.machine.may_commit(self.view, now)
        self.carry_out(self.machine.before_commit(self.view))
        return self.machine.commit(self.view, now, sent=sent)

    def __getitem__(self, partition: int) -> Task:
        return self.machine.tasks[TaskId(0, partition)]

    def close(self) -> None:
        for task in self.machine.tasks.values():
            task.close()


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Instance]:
    made = Instance(tmp_path)
    yield made
    made.close()


@pytest.fixture
def joins(tmp_path: Path) -> Iterator[Instance]:
    made = Instance(tmp_path, joining())
    yield made
    made.close()


# processing


def test_task_processes_once_positions_are_known_and_stores_restored(one: Instance) -> None:
    assert one.assign(0) == [Open(TaskId(0, 0), State.CATCHING_UP), Pause([place(0)]), Follow()]
    assert not one.machine.is_without_target(one.view), "an earlier owner may have a transaction open"
    one.reads(0, 5)
    (task,) = one.machine.is_without_target(one.view)
    one.answer(0, 2)
    assert one.release() == []
    task.state_manager.restore("counts", [logged(0, 0, b"a", b"1", ()), logged(1, 0, b"b", b"1", ())], 2)
    assert one.release() == [Resume([place(0)]), Follow()]
    assert one.machine.process(one.view, {place(0): [record(0, b"a")]}, 0) == [Output("out", b"a", b"2", 0)]
    assert counted(0) not in one.machine.to_follow(), "it writes its changelog itself now"


def test_end_offsets_requested_under_earlier_ownership_are_ignored(one: Instance) -> None:
    one.assign(0)
    one.reads(0, 5)
    one.machine.give_back([place(0)], lost=False)
    del one.view.positions[place(0)]
    one.assign(0)
    one.answer(0, 0)
    assert one[0].state_manager.targets is None, "its new positions are not known"
    one.reads(0, 9)
    one.answer(0, 0)
    assert one[0].state_manager.targets == {"counts": 0}


def test_task_that_receives_keys_waits_for_their_state(one: Instance) -> None:
    one.view.lineages["in"] = GROWN
    one.assign(2)
    one.reads(2, 0, KeyEpoch(2, 1))
    one.aim()
    assert one[2].state_manager.restored
    assert one.release() == []
    one.arrives(0, 2, 1)
    assert one.release() == [Resume([place(2)]), Follow()]


def test_running_task_stops_for_arriving_keys_and_catches_up_after_commit(
    one: Instance,
) -> None:
    one.view.lineages["in"] = SHRUNK
    one.runs(0)
    one[0].stores["counts"].put(b"k", b"1")
    one.reads(0, 3, KeyEpoch(0, 2))
    assert one.machine.expect_arrivals(one.view) == [Pause([place(0)])]
    assert one.machine.catch_up_expected() == [], "it has something to commit"
    one[0].on_committed({"counts": [0]}, transactional=True)
    assert one.machine.catch_up_expected() == [Follow()]
    assert one[0].state is State.CATCHING_UP


def test_task_that_runs_again_after_a_failed_commit_does_not_stop_for_what_it_has_restored(one: Instance) -> None:
    """It would stop without a pause of its input: the next records would end the instance."""
    one.runs(0)
    one.reads(0, 7)
    one[0].state_manager.doubt("counts")
    one[0].stores["counts"].put(b"k", b"1")
    assert one.commit() is not None
    one.machine.commit_failed()
    one.machine.on_aborted(one.view)
    one.aim()
    assert Resume([place(0)]) in one.release()
    assert one.machine.catch_up_expected() == []
    one.machine.process(one.view, {place(0): [record(0, b"a")]}, 0)


def test_records_for_a_task_that_is_not_running_are_an_assertion_error(one: Instance) -> None:
    one.assign(0)
    with pytest.raises(AssertionError, match="0_0 is catching up and was given records"):
        one.machine.process(one.view, {place(0): [record(0, b"a")]}, 0)


def test_records_of_joined_topics_are_processed_in_the_order_of_time(joins: Instance) -> None:
    joins.runs(0)
    rows = {
        place(0, topic): [
            ConsumerRecord(topic, 0, at, time_ms, b"k", b"%d" % time_ms, (), 0) for at, time_ms in enumerate(times_ms)
        ]
        for topic, times_ms in (("in", (1, 4, 5)), ("other", (3, 9)))
    }
    outputs = joins.machine.process(joins.view, rows, 0)
    assert [(row.value, row.timestamp_ms) for row in outputs] == [(b"4", 4), (b"5", 5)], "1 met no row yet"
    assert joins[0].stores["other-table"].get(b"k") == b"9"


def test_partitions_of_a_task_of_one_topic_are_read_alone(one: Instance) -> None:
    one.runs(0)
    assert not one.machine.read_together(one.view, place(0))


def test_partitions_of_a_task_of_several_topics_are_read_together(joins: Instance) -> None:
    joins.runs(1)
    both = [place(1), place(1, "other")]
    assert joins.machine.read_together(joins.view, both[0]) == joins.machine.read_together(joins.view, both[1]) == both
    joins.view.present["other"] = [0]
    assert joins.machine.read_together(joins.view, both[0]) == both[:1], "the removed one is not waited for"
    assert not joins.machine.read_together(joins.view, both[1])
    assert not joins.machine.read_together(joins.view, place(0)), "there is no task"


def test_joined_topic_that_is_ahead_is_held_back(joins: Instance) -> None:
    joins.view.lineages = {"in": GROWN.until(0), "other": GROWN.until(0)}
    joins.runs(0)
    joins.view.lineages["in"] = GROWN
    joins.reads(0, 4, KeyEpoch(0, 1), "in")
    assert joins.machine.holds_back(joins.view, place(0), 1)
    assert not joins.machine.holds_back(joins.view, place(0), 0)
    joins.view.lineages["other"] = GROWN
    joins.reads(0, 4, KeyEpoch(0, 1), "other")
    assert not joins.machine.holds_back(joins.view, place(0), 1)
    joins.view.lineages["other"] = Lineage(2, [(0, 2), (1, 6)])
    with pytest.raises(StreamsError, match="their histories differ"):
        joins.machine.holds_back(joins.view, place(0), 1)


# commits


def test_commit_contains_changes_and_is_omitted_without_any(one: Instance) -> None:
    one.runs(0, 1)
    assert one.commit() is None
    one.reads(0, 7)
    commit = one.commit()
    assert commit is not None
    assert commit.offsets == {place(0): 7}
    one.machine.on_committed(commit, 1.0, handed_over=False)
    assert one.commit() is None, "that is committed"
    assert one.commit(sent=True) is not None, "output was sent for records that changed nothing else"


def test_commit_in_progress_blocks_changes_to_tasks(one: Instance) -> None:
    one.runs(0)
    one.assign(0, 1)
    one.reads(0, 7)
    one.reads(1, 0)
    one.aim()
    commit = one.commit()
    assert commit is not None
    assert not one.machine.may_commit(one.view, 2.0)
    assert one.machine.restoring(counted(1)) is None
    assert one.release() == []
    one.machine.on_committed(commit, 1.0, handed_over=False)
    assert one.machine.restoring(counted(1)) == (one[1], "counts")
    assert one.release() == [Resume([place(1)]), Follow()]


def test_failed_commit_resumes_from_last_committed_offset(one: Instance) -> None:
    one.runs(0)
    one.reads(0, 7)
    one[0].stores["counts"].put(b"k", b"1")
    assert one.commit() is not None
    one.machine.commit_failed()
    assert Pause([place(0)]) in one.machine.on_aborted(one.view)
    assert not one[0].state_manager.changed
    assert one[0].state is State.CATCHING_UP
    assert one.machine.last_committed(place(0), None) == 0, "where reading began"
    assert one.machine.last_committed(place(0), 3) == 3
    assert one.machine.may_commit(one.view, 2.0)


def test_offset_of_a_coordinator_that_was_replaced_and_does_not_know_it_repeats_nothing(one: Instance) -> None:
    """It has an earlier one than its successor, to which the transaction was committed."""
    one.runs(0)
    one.reads(0, 7)
    one[0].stores["counts"].put(b"k", b"1")
    one.complete(one.commit())
    one.machine.on_aborted(one.view)
    assert one.machine.last_committed(place(0), 3) == 7
    assert one.machine.last_committed(place(0), 9) == 9, "the outcome of a later commit was unknown"


def test_commit_waits_for_the_end_of_a_rebalance(one: Instance) -> None:
    one.view.rebalancing = True
    assert not one.machine.may_commit(one.view, 1.0)
    assert one.machine.commit_schedule.put_off
    one.view.rebalancing = False
    assert one.machine.may_commit(one.view, 1.1)


def test_instance_that_gave_up_commits_nothing(one: Instance) -> None:
    one.runs(0)
    one.machine.give_up()
    assert not one.machine.may_commit(one.view, 1.0)


# hand-overs


def test_keys_are_handed_over_when_everything_before_the_cut_is_processed(one: Instance) -> None:
    one.view.lineages["in"] = GROWN
    one.runs(0, 1)
    one.reads(0, 4)
    commit = one.commit()
    assert commit is not None
    assert not commit.departures
    one.machine.on_committed(commit, 1.0, handed_over=False)
    one.reads(0, 5, KeyEpoch(0, 1))
    commit = one.commit()
    assert commit is not None
    assert [(due.task.id, due.opened) for due in commit.departures] == [(TaskId(0, 0), KeyEpoch(0, 1))]
    assert commit.offsets == {place(0): 5}
    assert commit.member is None, "the partition has an owner, and the group refuses another"
    one.machine.on_committed(commit, 3.0, handed_over=True)
    assert one.machine.commit_schedule.due == 3.0, "one transaction takes only so many keys"


def test_hand_over_commits_offset_again_to_verify_generation(one: Instance) -> None:
    one.view.lineages["in"] = GROWN
    one.runs(0)
    one.reads(0, 5)
    commit = one.commit()
    assert commit is not None
    one.machine.on_committed(commit, 1.0, handed_over=False)
    one.reads(0, 5, KeyEpoch(0, 1))
    commit = one.commit()
    assert commit is not None
    assert commit.offsets == {place(0): 5}


def test_commit_after_timers_confirms_offsets_that_are_committed_already(tmp_path: Path) -> None:
    def remind(context: Context, key: bytes | None, value: Any, forward: Handler) -> None:
        context.timers("due").set(key or b"", 50)

    topology = Topology()
    timer = Timer("due", lambda context, key, due_ms, forward: forward(key, b""), Clock.WALL_CLOCK_TIME)
    topology.stream("in").process(remind, timers=[timer]).to("out", value=BYTES)
    one = Instance(tmp_path, topology)
    one.runs(0, 1)
    one.machine.process(one.view, {place(0): [record(0, b"a")]}, 0)
    one.reads(0, 18)
    one.complete(one.commit())
    assert one.machine.punctuate(49) == []
    assert one.commit() is None
    assert one.machine.punctuate(50) == [Output("out", b"a", b"", 50)]
    commit = one.commit()
    assert commit is not None
    assert commit.offsets == {place(0): 18}, "otherwise a former owner of the task could commit its timers, too"
    one.complete(commit)
    assert one.commit() is None


def test_state_that_has_not_arrived_is_not_handed_over(one: Instance) -> None:
    grown_again = GROWN.resize(2, 8)
    one.view.lineages["in"] = grown_again
    one.assign(2)
    one.reads(2, 3, KeyEpoch(2, 2))
    one.aim()
    commit = one.commit()
    assert commit is None or not commit.departures
    one.arrives(0, 2, 1)
    commit = one.commit()
    assert commit is not None
    assert [due.opened for due in commit.departures] == [KeyEpoch(2, 2)]


def test_removed_partition_is_finished_in_its_assigned_generation(one: Instance) -> None:
    one.view.lineages["in"] = SHRUNK
    one.runs(0)
    one.reads(0, 4)
    commit = one.commit()
    assert commit is not None
    one.machine.on_committed(commit, 1.0, handed_over=False)
    assert one.assign(0, removed=[2])[0] == Open(TaskId(0, 2), State.CATCHING_UP)
    removed, tasks = one.machine.removed, list(one.machine.tasks.values())
    assert removed.undecided_partitions(tasks) == [place(2)]
    removed.note_stable(tasks, [place(2)], one.view.generation - 1)
    assert not one.machine.is_without_target(one.view), "that was an answer to an earlier question"
    removed.note_stable(tasks, [place(2)], one.view.generation)
    one.aim()
    one.arrives(0, 2, 1)
    assert one.release() == [], "it has nothing to process"
    one.view.generation += 1
    commit = one.commit(sent=True)
    assert commit is not None
    assert TaskId(0, 2) not in {due.task.id for due in commit.departures}, "others may have been given it"
    one.machine.on_committed(commit, 1.0, handed_over=False)
    one.view.generation -= 1
    commit = one.commit()
    assert commit is not None
    assert TaskId(0, 2) in {due.task.id for due in commit.departures}
    assert commit.member == one.view.group_metadata()
    assert commit.offsets == {place(0): 4}, "something has to be committed for the group to be asked"


def test_state_of_misplaced_keys_is_not_moved(one: Instance) -> None:
    key = next(b"%d" % number for number in range(100) if GROWN.until(0).address(murmur2(b"%d" % number)) == 1)
    one.view.lineages["in"] = GROWN.until(0)
    one.runs(0)
    one.machine.process(one.view, {place(0): [record(0, key)]}, 0)
    one.reads(0, 18)
    commit = one.commit()
    assert commit is not None, "a topic that was never resized may be written to by any producer"
    one[0].on_committed({"counts": [0, 1]}, transactional=True)
    one.machine.on_committed(commit, 1.0, handed_over=False)
    one.close()
    one.machine.tasks.clear()
    one.view.lineages["in"] = GROWN
    one.runs(0)
    with pytest.raises(StreamsError, match=rf"0_0 has state of keys .* in-0 at offset 17, key b'{key.decode()}'"):
        one.commit()


# assignments


def test_tasks_are_opened_kept_and_closed_as_assigned(one: Instance) -> None:
    one.runs(0, 1)
    kept, closed = one[0], one[1]
    del one.view.positions[place(1)]
    assert one.assign(0, standby=[3]) == [Close(closed), Open(TaskId(0, 3), State.STANDBY), Pause([]), Follow()]
    assert one[0] is kept
    assert kept.state is State.RUNNING
    one.assign(0, 3)
    assert one[3].state is State.CATCHING_UP
    with pytest.raises(StreamsError, match="ASSIGNMENT_ERROR"):
        one.machine.on_tasks(AssignedTasks(error=AssignorError.ASSIGNMENT_ERROR))


@pytest.mark.parametrize("protocol", ["eager", "cooperative"])
def test_offset_sums_report_running_tasks_and_checkpoints_of_others(protocol: str, tmp_path: Path) -> None:
    one = Instance(tmp_path, rebalance_protocol=protocol)
    one.runs(0, 1)
    one.assign(0, 1, standby=[2])
    one[2].state_manager.restore("counts", [logged(0, 0, b"k", b"1", ())], 4)
    assert one.machine.offset_sums() == {TaskId(0, 0): RUNNING, TaskId(0, 1): RUNNING, TaskId(0, 2): 4}
    one.machine.give_back([place(0)], lost=False)
    assert one.machine.offset_sums()[TaskId(0, 0)] == (RUNNING if protocol == "eager" else 0)
    one.machine.give_back([place(1)], lost=True)
    assert one.machine.offset_sums()[TaskId(0, 1)] == 0
    one.assign(0)
    assert one.machine.offset_sums()[TaskId(0, 2)] == 4, "closed, and still on this disk"
    one.close()


def test_rejoin_is_requested_when_last_warmup_has_caught_up(one: Instance) -> None:
    one.assign(standby=[0, 1])
    assert one.machine.note_lags({counted(0): 0}) == [], "the lag of one is not known"
    assert one.machine.note_lags({counted(1): 10_001}) == []
    assert one.machine.note_lags({counted(1): 10_000}) == [Rejoin()]
    assert one.machine.note_lags({counted(1): 0}) == [], "once"


def test_marks_are_written_again_to_truncated_changelog(one: Instance) -> None:
    """Other instances read there what was handed over."""
    one.assign(0)
    one.reads(0, 0)
    one.answer(0, 0)
    assert not one[0].stores["counts"].log_marks
    one[0].state_manager.doubt("counts")
    one.answer(3, 3)
    assert one[0].stores["counts"].log_marks
    one.release()
    one[0].on_committed({}, transactional=True)
    assert not one[0].stores["counts"].log_marks


def test_standby_is_compared_with_changelog_when_opened_or_doubted(one: Instance) -> None:
    one.assign(standby=[0])
    assert one.machine.is_without_target(one.view) == [one[0]]
    one.answer(0, 3)
    assert one.machine.is_without_target(one.view) == []
    assert one.machine.doubt([], {counted(0).topic: OTHER_ID})
    assert one.machine.is_without_target(one.view) == [one[0]]
    assert one.answer(0, 9, topic_id=OTHER_ID) == [Seek(counted(0), 0), Follow()]
    assert one.machine.is_without_target(one.view) == []


def test_running_task_whose_offsets_decreased_is_stopped_and_compared_with_changelog(one: Instance) -> None:
    one.runs(0)
    one[0].stores["counts"].put(b"k", b"1")
    one[0].on_committed({"counts": [0, 1, 2]}, transactional=True)
    one[0].on_committed({"counts": [1]}, transactional=True)
    assert one.machine.before_commit(one.view) == [Pause([place(0)])]
    assert one.machine.catch_up_expected() == [Follow()]
    assert one.answer(0, 2, topic_id=OTHER_ID) == [Seek(counted(0), 0), Follow()]
    assert one[0].state_manager.targets == {"counts": 2}
