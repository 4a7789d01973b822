"""Positions in real logs: bounds, offsets, times, and topics by pattern."""

from __future__ import annotations

import time

import pytest

from anabranch.spark_jobs.positions import Positions
from anabranch.spark_jobs.reader import TopicReader
from anabranch.spark_jobs.source_options import EARLIEST, LATEST, Options
from tests.spark_jobs.happenings import delete
from tests.spark_jobs.live import LiveCluster


def positions(live: LiveCluster, **options: str) -> Positions:
    given = {name.replace("_", "."): value for name, value in options.items()}
    found = Options.of({"bootstrap.servers": live.servers, **given}, streaming=True)
    return Positions(found, TopicReader(live.servers, timeout_s=0.5))


def rows(count: int, partition: int) -> list[tuple[int, bytes, bytes]]:
    return [(partition, b"k", b"v")] * count


def test_bounds_and_offsets_are_resolved(live: LiveCluster) -> None:
    topic = live.create("positions", 2)
    live.produce(topic, [*rows(3, 0), *rows(2, 1)])
    here = positions(live, subscribe=topic, startingOffsets=f'{{"{topic}": {{"0": 1, "1": -1}}}}')
    try:
        assert here.bound(EARLIEST) == {topic: {"0": 0, "1": 0}}
        assert here.bound(LATEST) == {topic: {"0": 3, "1": 2}}
        assert here.resolve(here._options.start) == {topic: {"0": 1, "1": 2}}
    finally:
        here.close()


def test_timestamps_are_resolved_to_offsets(live: LiveCluster) -> None:
    topic = live.create("times", 2)
    live.produce(topic, rows(3, 0))
    begin_ms = 0
    late_ms = int(time.time() * 1000) + 3_600_000
    by_time = f'{{"{topic}": {{"0": {begin_ms}, "1": {begin_ms}}}}}'
    cases = [
        ({"startingTimestamp": str(late_ms), "startingOffsetsByTimestampStrategy": "latest"}, {"0": 3, "1": 0}),
        ({"startingOffsetsByTimestamp": by_time, "startingOffsetsByTimestampStrategy": "latest"}, {"0": 0, "1": 0}),
    ]
    for options, expected in cases:
        here = positions(live, subscribe=topic, **options)
        assert here.resolve(here._options.start) == {topic: expected}
        here.close()
    here = positions(live, subscribe=topic, startingTimestamp=str(late_ms))
    with pytest.raises(ValueError, match="times has no record at or after the given time in partition 0, 1"):
        here.resolve(here._options.start)
    here.close()


def test_named_partitions_must_exist_and_be_complete(live: LiveCluster) -> None:
    topic = live.create("named", 2)
    for options, complaint in [
        ({"subscribe": topic, "startingOffsets": f'{{"{topic}": {{"0": 1}}}}'}, "and not for 1"),
        ({"subscribe": topic, "startingOffsets": f'{{"{topic}": {{"0": 1, "1": 0, "2": 0}}}}'}, "named-2"),
        ({"assign": f'{{"{topic}": [0, 5]}}'}, "named has no partition 5"),
    ]:
        here = positions(live, **options)
        with pytest.raises(ValueError, match=complaint):
            here.resolve(here._options.start)
        here.close()
    here = positions(live, assign=f'{{"{topic}": [1]}}')
    assert here.bound(LATEST) == {topic: {"1": 0}}
    here.close()


def test_topics_matching_a_pattern_are_found_when_created(live: LiveCluster) -> None:
    here = positions(live, subscribePattern="pattern-[ab]")
    live.create("pattern-a", 1)
    live.create("pattern-ab", 1)
    assert here.bound(LATEST) == {"pattern-a": {"0": 0}}
    live.create("pattern-b", 1)
    assert here.bound(LATEST) == {"pattern-a": {"0": 0}, "pattern-b": {"0": 0}}
    here.close()


def test_recreated_topic_is_detected(live: LiveCluster) -> None:
    topic = live.create("again", 1)
    here = positions(live, subscribe=topic)
    here.check_identity()
    here.check_identity()
    delete(live, topic)
    live.create(topic, 1)
    with pytest.raises(RuntimeError, match="again was deleted and created again"):
        here.check_identity()
    here.close()
