"""The tasks of a topology, and partition counts of internal topics."""

from __future__ import annotations

import pytest

from anabranch.clients.streams.partition_grouper import (
    MissingSourceTopic,
    TaskAssignmentError,
    TopicsInfo,
    changelog_counts,
    changelogs_of_tasks,
    partitions_of_tasks,
    repartition_counts,
)
from anabranch.clients.streams.task_id import TaskId
from anabranch.protocol.lineage import Lineage
from anabranch.protocol.topic_partition import TopicPartition


def info(sources: str, sinks: str = "", changelogs: str = "", **repartition: int | None) -> TopicsInfo:
    return TopicsInfo(
        source_topics=frozenset(sources.split()) | repartition.keys(),
        sink_topics=frozenset(sinks.split()),
        changelog_topics=frozenset(changelogs.split()),
        repartition_topics=repartition,
    )


def test_task_reads_its_partition_of_every_source() -> None:
    tasks = partitions_of_tasks([info("wide narrow"), info("odd")], {"wide": range(3), "narrow": [0], "odd": [1, 5]})
    assert {str(task): [str(one) for one in partitions] for task, partitions in tasks.items()} == {
        "0_0": ["narrow-0", "wide-0"],
        "0_1": ["wide-1"],
        "0_2": ["wide-2"],
        "1_1": ["odd-1"],
        "1_5": ["odd-5"],
    }


def test_changelog_has_partitions_up_to_highest_task() -> None:
    topology = [info("plain"), info("in", changelogs="a b")]
    tasks = partitions_of_tasks(topology, {"plain": [0], "in": [0, 4]})
    changelogs = changelogs_of_tasks(topology, tasks)
    assert changelogs == {
        TaskId(1, 0): (TopicPartition("a", 0), TopicPartition("b", 0)),
        TaskId(1, 4): (TopicPartition("a", 4), TopicPartition("b", 4)),
    }
    assert changelog_counts(changelogs) == {"a": 5, "b": 5}


def test_repartition_topic_has_partition_count_of_its_widest_source() -> None:
    topology = [info("in other", sinks="first"), info("", sinks="second", first=None), info("", second=None)]
    assert repartition_counts(topology, {"in": range(4), "other": range(7)}) == {"first": 7, "second": 7}


def test_partition_count_is_computed_after_its_dependencies() -> None:
    topology = [info("wide", sinks="first"), info("", sinks="last", first=None), info("narrow", sinks="last")]
    last = info("", last=None)
    counts = repartition_counts([topology[2], last, *topology[:2]], {"wide": range(7), "narrow": range(2)})
    assert counts == {"first": 7, "last": 7}


def test_repartition_topic_has_configured_partition_count() -> None:
    topology = [info("in", sinks="first"), info("", sinks="second", first=3), info("", second=None)]
    assert repartition_counts(topology, {"in": range(4)}) == {"first": 3, "second": 3}


def test_joined_topics_get_equal_partition_counts() -> None:
    joined = TopicsInfo(
        source_topics=frozenset({"table", "again"}),
        repartition_topics={"again": None},
        copartitioned=(frozenset({"table", "again"}),),
    )
    topology = [info("in", sinks="again"), joined]
    assert repartition_counts(topology, {"in": range(2), "table": range(5)}) == {"again": 5}
    both = [info("x", sinks="a"), info("y", sinks="b"), info("", a=None, b=None)]
    widest = TopicsInfo(**{**_fields(both[2]), "copartitioned": (frozenset({"a", "b"}),)})
    assert repartition_counts([*both[:2], widest], {"x": range(2), "y": range(6)}) == {"a": 6, "b": 6}


def test_joined_repartition_topic_that_is_missing_gets_the_width_of_those_that_exist() -> None:
    both = TopicsInfo(
        source_topics=frozenset({"a", "b"}),
        repartition_topics={"a": None, "b": None},
        copartitioned=(frozenset({"a", "b"}),),
    )
    topology = [info("in", sinks="a b"), both]
    assert repartition_counts(topology, {"in": range(8), "a": range(3)}) == {"a": 3, "b": 3}


def test_topic_whose_readers_write_to_it_has_the_width_of_their_other_sources() -> None:
    topology = [info("in", sinks="again", again=None), info("wide", sinks="last"), info("", last=None)]
    assert repartition_counts(topology, {"in": range(4), "wide": range(7)}) == {"again": 4, "last": 7}


def _fields(one: TopicsInfo) -> dict[str, object]:
    return {"source_topics": one.source_topics, "repartition_topics": one.repartition_topics}


def test_joined_topics_with_different_counts_are_refused() -> None:
    joined = TopicsInfo(source_topics=frozenset({"a", "b"}), copartitioned=(frozenset({"a", "b"}),))
    with pytest.raises(TaskAssignmentError, match="a has 2, b has 3"):
        repartition_counts([joined], {"a": range(2), "b": range(3)})
    said = TopicsInfo(
        source_topics=frozenset({"a", "again"}),
        repartition_topics={"again": 4},
        copartitioned=(frozenset({"a", "again"}),),
    )
    with pytest.raises(TaskAssignmentError, match="a has 2, again has 4"):
        repartition_counts([info("in", sinks="again"), said], {"a": range(2), "in": [0]})


def test_joined_topics_may_be_resized_one_after_another() -> None:
    joined = TopicsInfo(source_topics=frozenset({"a", "b"}), copartitioned=(frozenset({"a", "b"}),))
    before, wider = Lineage(1, [(0, 2)]), Lineage(1, [(0, 2), (1, 4)])
    ahead = {"a": range(4), "b": range(2)}
    assert repartition_counts([joined], ahead, {"a": wider, "b": before}) == {}
    with pytest.raises(TaskAssignmentError, match="a has 4, b has 2"):
        repartition_counts([joined], ahead, {"a": wider})
    with pytest.raises(TaskAssignmentError, match=r"a \(2, then 4\) and b \(4\) .* their histories differ"):
        repartition_counts([joined], {"a": range(4), "b": range(4)}, {"a": wider, "b": Lineage(1, [(0, 4)])})


def test_missing_sources_are_named() -> None:
    with pytest.raises(MissingSourceTopic, match="missing source topics: gone, lost"):
        repartition_counts([info("in lost"), info("gone")], {"in": [0]})


def test_undetermined_partition_count_is_an_error() -> None:
    with pytest.raises(TaskAssignmentError, match="cannot compute the partition counts of: a, b"):
        repartition_counts([info("", sinks="b", a=None), info("", sinks="a", b=None)], {})
    with pytest.raises(TaskAssignmentError, match="cannot compute the partition counts of: orphan"):
        repartition_counts([info("", orphan=None)], {})
