"""Tasks of removed partitions: their owner, their purpose, and a single hand-over of state."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from anabranch.clients.metadata import ClusterMetadata
from anabranch.clients.streams.partition_grouper import TopicsInfo, removed_tasks
from anabranch.clients.streams.removed_tasks import RemovedTasks
from anabranch.clients.streams.streams_errors import TasksMigrated
from anabranch.clients.streams.streams_partition_assignor import AssignedTasks
from anabranch.clients.streams.task_id import TaskId
from anabranch.clients.streams.task_inputs import ConsumerView
from anabranch.protocol.lineage import Lineage
from anabranch.protocol.topic_partition import TopicPartition
from tests.clients.streams.test_streams_partition_assignor import TOPOLOGY, Cluster, Thread, metadata
from tests.clients.streams.views import View
from tests.clients.streams.world import counts, streams_world, until
from tests.sim.resizing import removals_soon

HISTORY = Lineage(1, [(0, 2), (1, 6), (2, 2)])
"""2 goes to 0 in the end, as does 4; 3 and 5 go to 1."""


def shrunk(*gone: int) -> ClusterMetadata:
    """The input after a growth and a shrink, some of what was merged away being removed."""
    (topic,) = metadata(**{"in": 6}).topics.values()
    there = {index: one for index, one in topic.partitions.items() if index not in gone}
    return ClusterMetadata(topics={"in": dataclasses.replace(topic, partitions=there, lineage=HISTORY)})


def test_removed_task_without_owner_moves_with_owner_of_merge_target() -> None:
    zero, one = TaskId(0, 0), TaskId(0, 1)

    def found(*gone: int, owned: int = -1, topology: list[TopicsInfo] = TOPOLOGY) -> dict[TaskId, TaskId]:
        return removed_tasks(topology, shrunk(*gone).topics, {TopicPartition("in", owned)})

    assert found() == {}, "what is still there has an owner"
    assert found(2, 3, 4, 5) == {TaskId(0, 2): zero, TaskId(0, 3): one, TaskId(0, 4): zero, TaskId(0, 5): one}
    assert found(4, 5, owned=5) == {TaskId(0, 4): zero}, "its owner may be about to hand over"
    assert found(1, 5) == {TaskId(0, 5): one}, "what producers may write to is not removed, only unknown"
    assert found(5, topology=[TopicsInfo(source_topics=frozenset({"in"}))]) == {}, "there is no state"
    assert removed_tasks(TOPOLOGY, metadata(**{"in": 2}).topics, ()) == {}, "Kafka's own topics only grow"


def test_removed_task_of_joined_topics_requires_all_partitions_removed() -> None:
    joined = [TopicsInfo(source_topics=frozenset({"in", "other"}), changelog_topics=frozenset({"counts"}))]

    def found(*gone: int, lineage: Lineage = HISTORY, owned: int = -1) -> dict[TaskId, TaskId]:
        other = dataclasses.replace(shrunk(*gone).topics["in"], name="other", lineage=lineage)
        topics = {**shrunk(4, 5).topics, "other": other}
        return removed_tasks(joined, topics, {TopicPartition("other", owned)})

    assert found() == {}
    assert found(5) == {TaskId(0, 5): TaskId(0, 1)}
    assert found(5, owned=5) == {}
    assert found(2, 3, 4, 5, lineage=HISTORY.until(0)) == {}, "the other is still to have these"
    assert found(5, lineage=HISTORY.resize(3, 1)) == {TaskId(0, 5): TaskId(0, 0)}, "what both have is an heir"
    assert removed_tasks(joined, shrunk(4, 5).topics, ()) == {}, "one is not known"


def test_leader_assigns_each_removed_task_to_one_member() -> None:
    cluster = Cluster()
    threads = [Thread(number, name, cluster) for number, name in enumerate("ab", 1)]
    threads[0].runs(0)
    threads[1].runs(1)
    given = threads[0].lead(threads[1], cluster=shrunk(2, 3, 4, 5))
    for thread in threads:
        thread.assignor.on_assignment(given[thread.name], 7)
    assert [set(one.tasks.removed) for one in threads] == [{TaskId(0, 2), TaskId(0, 4)}, {TaskId(0, 3), TaskId(0, 5)}]
    assert not any(one.tasks.standby for one in threads), "they are no copies"
    assert threads[0].tasks.generation == 7


def test_removed_task_waits_until_its_partition_is_unowned_and_merge_target_owned() -> None:
    cluster = Cluster()
    one, other = Thread(1, "a", cluster), Thread(2, "b", cluster)
    one.runs(0, 1, 5)
    given = one.lead(other, cluster=shrunk(2, 3, 4, 5))
    for thread in (one, other):
        thread.assignor.on_assignment(given[thread.name], 1)
    tasks = {task for thread in (one, other) for task in thread.tasks.removed}
    assert TaskId(0, 5) not in tasks, "it is claimed"
    kept = {partition.partition for partition in given["a"].partitions}
    assert len(kept) == 1, "one task is to move, and is nobody's for a round"
    assert {task.partition % 2 for task in tasks} == kept


def test_removed_tasks_are_finished_only_in_their_assigned_generation() -> None:
    removed, consumer = RemovedTasks(counts().build("app")), View()
    assert removed.member(consumer) is None, "nothing was given"
    removed.assign(AssignedTasks(removed={TaskId(0, 5)}, generation=7))
    assert removed.member(consumer) == consumer.group_metadata()
    consumer.generation = 8  # the group has agreed on it, and the tasks of it are not known here yet
    assert removed.member(consumer) is None


async def test_hand_over_of_removed_partition_state_commits_with_group_generation(tmp_path: Path) -> None:
    with removals_soon():
        async with streams_world(tmp_path) as world:
            await world.feed(300)
            async with world.instance(counts()) as one:
                await world.counted(one)
                await world.admin.create_partitions("in", 8)
                await until(lambda: one.moves.deliveries == 4, "the children have their state")
            await world.admin.create_partitions("in", 4, allow_shrink=True)
            await world.admin.wait_until(lambda known: len(known.topics["in"].partitions) == 4, "in")
            async with world.instance(counts()) as one:
                removed, recover, refused = one._manager.machine.removed, one._manager.recover, 0
                member = removed.member

                async def count(error: TasksMigrated) -> None:
                    nonlocal refused
                    refused += 1
                    await recover(error)

                def of_old(view: ConsumerView) -> object:
                    now = member(view)
                    return now and now._replace(generation_id=now.generation_id - 1)

                one._manager.recover = count  # type: ignore[method-assign]
                removed.member = of_old  # type: ignore[assignment, method-assign]
                await until(lambda: refused >= 2 or one.moves.keys > 0, "it tries to hand over")
                assert one.moves.keys == 0
                removed.member = member  # type: ignore[method-assign]
                await world.feed(300)
                await world.counted(one)
                assert one.moves.deliveries == 4
                await until(lambda: len(one.tasks) == 4, "what is finished is closed")
