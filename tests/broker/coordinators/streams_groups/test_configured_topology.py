"""A topology has the same tasks as in Kafka, and errors are reported before assignment.

The same topologies are shown to Kafka 4.2 by `tests/differential/corpus/streams_groups.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from anabranch.broker.coordinators.streams_groups.configured_topology import (
    INCORRECTLY_PARTITIONED_TOPICS,
    MISSING_INTERNAL_TOPICS,
    MISSING_SOURCE_TOPICS,
    PARTITIONS_MAX,
    TASKS_MAX,
    ConfiguredTopology,
    check_topology,
    configure,
    is_same_topology,
    required_topics,
    summary,
)
from anabranch.protocol.apis.streams_group_heartbeat import Subtopology
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.streams_group_records import StreamsGroupTopologyValue
from tests.broker.coordinators.consumer_groups.world import Topics
from tests.broker.coordinators.streams_groups.world import COUNTS, info, subtopology


def configured(*parts: Subtopology, **topics: int) -> ConfiguredTopology:
    known = Topics()
    for name, count in topics.items():
        known.make(name, count)
    return configure(StreamsGroupTopologyValue(epoch=0, subtopologies=list(parts)), known.find)


def task_counts(found: ConfiguredTopology) -> Mapping[str, int]:
    return {name: one.task_count for name, one in found.subtopologies.items()}


def widths(found: ConfiguredTopology) -> Mapping[str, int]:
    return {name: count for one in found.subtopologies.values() for name, count in one.counts.items()}


def test_each_partition_of_the_largest_source_topic_has_a_task() -> None:
    found = configured(subtopology("0", "two", "three"), two=2, three=3)
    assert found.ready and task_counts(found) == {"0": 3} and found.missing == ()


def test_internal_topics_have_as_many_partitions_as_tasks() -> None:
    found = configured(*COUNTS, t=3)
    assert (found.status, [(topic.name, count) for topic, count in found.missing]) == (
        MISSING_INTERNAL_TOPICS,
        [("counts", 3), ("words", 3)],
    )
    again = configured(*COUNTS, t=3, words=3, counts=3)
    assert again.ready and task_counts(again) == {"0": 3, "1": 3}


def test_explicit_partition_count_applies_downstream() -> None:
    first = COUNTS[0]
    found = configured(first, subtopology("1", reads={"words": 5}, keeps=["counts"]), t=3)
    assert widths(found) == {"words": 5, "counts": 5} and task_counts(found) == {"0": 3, "1": 5}


def test_partition_counts_do_not_depend_on_the_order_of_subtopologies() -> None:
    parts = (
        subtopology("0", reads={"b": 0}, keeps=["log"]),
        subtopology("1", reads={"a": 0}, sinks=["b"]),
        subtopology("2", "t", sinks=["a"]),
    )
    assert widths(configured(*parts, t=2)) == {"a": 2, "b": 2, "log": 2}


def test_largest_known_upstream_topic_sets_the_partition_count() -> None:
    """Later topics of the same turn know it already; ids are numbers: 10 comes after 2."""
    parts = (
        subtopology("0", "four", sinks=["a"]),
        subtopology("1", reads={"a": 0}, sinks=["b"]),
        subtopology("2", "two", reads={"b": 0}, sinks=["c"]),
        subtopology("10", "two", reads={"c": 0}, sinks=["d"]),
        subtopology("11", reads={"d": 0}),
    )
    assert widths(configured(*parts, two=2, four=4)) == dict.fromkeys("abcd", 4)


@pytest.mark.parametrize(
    ("parts", "wanted"),
    [
        pytest.param(
            [subtopology("0", "two", sinks=["a"]), subtopology("1", "four", reads={"a": 0}, together=([0], [0]))],
            {"a": 4},
            id="as wide as the source beside it",
        ),
        pytest.param(
            [
                subtopology("0", "two", sinks=["a"]),
                subtopology("1", "four", sinks=["b"]),
                subtopology("2", reads={"a": 0, "b": 0}, together=([], [0, 1])),
            ],
            {"a": 4, "b": 4},
            id="as wide as the wider one",
        ),
        pytest.param(
            [
                subtopology("0", "two", sinks=["a"]),
                subtopology("1", "four", sinks=["b"]),
                subtopology("2", reads={"a": 0, "b": 3}, together=([], [0, 1])),
            ],
            {"a": 3, "b": 3},
            id="as wide as the one that is set",
        ),
    ],
)
def test_copartitioned_topics_have_equal_partition_counts(parts: list[Subtopology], wanted: Mapping[str, int]) -> None:
    assert widths(configured(*parts, two=2, four=4)) == wanted


def test_existing_copartitioned_topics_keep_their_counts_when_a_source_grows() -> None:
    parts = (
        subtopology("0", "t", sinks=["a"]),
        subtopology("1", "u", sinks=["b"]),
        subtopology("2", reads={"a": 0, "b": 0}, together=([], [0, 1])),
    )
    found = configured(*parts, t=4, u=2, a=2, b=2)
    assert found.ready and task_counts(found) == {"0": 4, "1": 2, "2": 2}


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        pytest.param([subtopology("0", "two", "none")], MISSING_SOURCE_TOPICS, id="a source is missing"),
        pytest.param(
            [subtopology("0", "two", "four", together=([0, 1], []))],
            INCORRECTLY_PARTITIONED_TOPICS,
            id="sources differ",
        ),
        pytest.param(
            [subtopology("0", "two", sinks=["a"]), subtopology("1", "four", reads={"a": 2}, together=([0], [0]))],
            INCORRECTLY_PARTITIONED_TOPICS,
            id="a count that is set is not the source's",
        ),
        pytest.param(
            [subtopology("0", "two", keeps=["four"])], INCORRECTLY_PARTITIONED_TOPICS, id="a changelog is too wide"
        ),
    ],
)
def test_invalid_topology_has_a_status_and_no_tasks(parts: list[Subtopology], status: int) -> None:
    found = configured(*parts, two=2, four=4)
    assert (found.status, found.ready, dict(found.subtopologies), found.missing) == (status, False, {}, ())
    assert found.detail


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([subtopology("0", reads={"a": 0}, sinks=["a"])], id="a loop"),
        pytest.param([subtopology("0", "t"), subtopology("1", reads={"a": 0})], id="nobody writes"),
        pytest.param([subtopology("0", "t", keeps=[f"log-{one}" for one in range(26)])], id="too much of it"),
    ],
)
def test_topology_with_too_many_tasks_is_refused(parts: list[Subtopology]) -> None:
    with pytest.raises(KafkaError) as refused:
        configured(*parts, t=TASKS_MAX // 25)
    assert refused.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_long_chain_of_subtopologies_is_configured_in_linear_time() -> None:
    """Kafka's algorithm would take 10,000 times as long here."""
    count = 10_000
    parts = [
        subtopology(
            str(count - one), *(() if one else ("t",)), reads={f"r{one}": 0} if one else {}, sinks=[f"r{one + 1}"]
        )
        for one in range(count)
    ]
    assert set(widths(configured(*parts, subtopology("0", reads={f"r{count}": 0}), t=2)).values()) == {2}


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([subtopology("0", "t"), subtopology("0", "u")], id="twice"),
        pytest.param([subtopology("0")], id="has no source topics"),
        pytest.param([subtopology("0", reads={"a": PARTITIONS_MAX + 1})], id="too wide"),
        pytest.param([subtopology("0", reads={"a": -1})], id="less than none"),
        pytest.param([subtopology("0", "t", together=([1], []))], id="a place that is none"),
        pytest.param([subtopology("0", "t", together=([-1], []))], id="a place before the first"),
        pytest.param([subtopology("0", "t", together=([0], [0]))], id="no such topic between"),
    ],
)
def test_malformed_topology_is_refused(parts: list[Subtopology]) -> None:
    with pytest.raises(KafkaError) as refused:
        check_topology(parts)
    assert refused.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_partition_count_of_a_changelog_topic_is_refused() -> None:
    part = subtopology("0", "t")
    part.state_changelog_topics = [info("log", 3)]
    with pytest.raises(KafkaError):
        check_topology([part])


def test_topologies_are_compared_regardless_of_order() -> None:
    def of(epoch: int, *parts: Subtopology) -> StreamsGroupTopologyValue:
        return StreamsGroupTopologyValue(epoch=epoch, subtopologies=list(parts))

    first, second = COUNTS
    assert is_same_topology(of(1, first, second), of(1, second, first))
    assert not is_same_topology(of(1, first, second), of(2, first, second))
    assert not is_same_topology(of(1, first, second), of(1, first))
    assert required_topics(COUNTS) == {"t", "words", "counts"}


def test_long_list_is_abbreviated() -> None:
    assert (summary(["b", "a"]), summary("edcba")) == ("a, b", "a, b, c and 2 more")
