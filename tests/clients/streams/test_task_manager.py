"""A task whose changelog was created again stops with the commit that found it out. Tasks whose output was dropped with
that of another one process again.

Method: the real manager and machine, with a real store on disk; consumer and committer are played.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from anabranch.clients.consumer.consumer import Consumer
from anabranch.clients.streams.changelog_reader import ChangelogReader
from anabranch.clients.streams.committer import Committer, Moves
from anabranch.clients.streams.config import StreamsConfig
from anabranch.clients.streams.state_directory import StateDirectory
from anabranch.clients.streams.streams_errors import TasksMigrated
from anabranch.clients.streams.task_effects import Commit
from anabranch.clients.streams.task_manager import TaskManager
from anabranch.clients.streams.task_state import State
from anabranch.protocol.topic_partition import TopicPartition
from tests.clients.streams.test_task_machine import Instance, counted, place
from tests.clients.streams.views import View


class PausingView(View):
    """A consumer that notes what is paused."""

    paused: frozenset[TopicPartition] = frozenset()

    def pause(self, *partitions: TopicPartition) -> None:
        self.paused |= {*partitions}


class DoubtingCommitter:
    """Stores the changes, and finds that the changelog was created again."""

    open = False
    moves = Moves()

    async def commit(self, commit: Commit) -> list[Any]:
        for task in commit.tasks:
            task.on_committed({"counts": [7]}, transactional=False)
            task.state_manager.doubt("counts")
        return []


class DroppingCommitter:
    """Has sent output of all tasks in one transaction."""

    open = True

    async def drop(self) -> None:
        self.open = False


class Reader:
    """Notes which changelogs are read."""

    def follow(self, start_offsets: dict[TopicPartition, int]) -> None:
        self.followed = start_offsets


def manager_of(one: Instance, committer: object, reader: Reader) -> TaskManager:
    return TaskManager(
        StreamsConfig(application_id="app", bootstrap_servers="nowhere:1", state_dir=one.directory),
        one.built,
        one.machine,
        cast(StateDirectory, None),
        cast(ChangelogReader, reader),
        asyncio.Event(),
        make_consumer=lambda listener: cast(Consumer, one.view),
        make_committer=lambda consumer: cast(Committer, committer),
        global_stores={},
    )


async def test_task_whose_changelog_was_created_again_processes_nothing_after_the_commit(tmp_path: Path) -> None:
    one = Instance(tmp_path)
    one.view = view = PausingView()
    one.runs(0)
    one[0].stores["counts"].put(b"k", b"1")
    reader = Reader()
    manager = manager_of(one, DoubtingCommitter(), reader)
    await manager.commit()
    assert view.paused == {place(0)}
    assert one[0].state is State.CATCHING_UP
    assert counted(0) in reader.followed
    one.close()


async def test_task_that_stays_when_another_is_lost_processes_again_what_was_dropped_with_it(tmp_path: Path) -> None:
    """A topic was created again: the transaction with the output of all tasks is aborted."""
    one = Instance(tmp_path)
    one.view = PausingView()
    one.runs(0, 1)
    one[0].stores["counts"].put(b"k", b"1")
    manager = manager_of(one, DroppingCommitter(), Reader())
    del one.view.positions[place(1)]
    with pytest.raises(TasksMigrated):
        await manager.on_partitions_lost([place(1)])
    await manager.on_partitions_lost([place(1)])
    one.close()
