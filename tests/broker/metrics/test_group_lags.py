"""Lags are high watermarks minus committed offsets, never negative, and computed in steps."""

from __future__ import annotations

import asyncio

from anabranch.broker.coordinators.offsets.committed_offsets import CommittedOffset
from anabranch.broker.metrics.group_lags import GroupLags
from anabranch.broker.tasks.yield_budget import ELEMENTS_PER_YIELD
from anabranch.protocol.topic_partition import TopicPartition
from tests.broker.yields import manual_clock


def committed(**offsets: list[int]) -> dict[TopicPartition, CommittedOffset]:
    return {
        TopicPartition(topic, index): CommittedOffset(offset=offset, commit_timestamp_ms=0)
        for topic, ones in offsets.items()
        for index, offset in enumerate(ones)
    }


async def test_lags_are_computed_of_partitions_that_the_broker_replicates() -> None:
    ends = {("t", 0): 10, ("t", 1): 7, ("u", 0): 3}
    groups = [("g", committed(t=[4, 6], u=[5], elsewhere=[1])), ("h", committed(t=[9]))]
    lags = await GroupLags.of(groups, ends)
    assert lags.partitions == [("g", "t", 0, 6), ("g", "t", 1, 1), ("g", "u", 0, 0), ("h", "t", 0, 1)]
    assert lags.sums == {("g", "t"): 7, ("g", "u"): 0, ("h", "t"): 1}
    assert lags.largest == {("g", "t"): 6, ("g", "u"): 0, ("h", "t"): 1}


async def test_other_work_runs_while_many_lags_are_computed() -> None:
    """A commit meanwhile may add a partition."""
    offsets = committed(t=[0] * (5 * ELEMENTS_PER_YIELD))
    ends = dict.fromkeys(offsets, 1)

    async def commit() -> None:
        offsets.update(committed(u=[0]))

    committing = asyncio.create_task(commit())
    with manual_clock():
        lags = await GroupLags.of([("g", offsets)], ends)
    assert committing.done() and ("u", 0) in offsets
    assert lags.sums == {("g", "t"): 5 * ELEMENTS_PER_YIELD}
