"""A fence lasts from the leader's adoption of a generation to its publication."""

from __future__ import annotations

import math

from anabranch.broker.metadata.metadata_cache import ClusterImage, TopicImage
from anabranch.broker.metrics.fences import FenceDurations


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def image(generation: int, count: int) -> ClusterImage:
    topic = TopicImage("t", bytes(16), {}, undeleted_partition_count=count, generation=generation)
    return ClusterImage(topics={"t": topic})


def test_fence_duration_ends_with_the_publication() -> None:
    clock = Clock()
    fences = FenceDurations(clock)
    fences.on_leader("t", 0, 1, image(0, 2))
    fences.on_leader("t", 1, 1, image(0, 2))
    assert fences.closed == 2
    clock.now_s += 0.03
    fences.on_leader("t", 0, 1, image(0, 2))  # another leader epoch of the same generation: refused all the time
    fences.on_metadata(image(0, 2), image(0, 2))
    assert (fences.closed, fences.lengths_s.count) == (2, 0)
    clock.now_s += 0.01
    fences.on_metadata(image(0, 2), image(1, 4))
    assert (fences.closed, fences.lengths_s.count) == (0, 2)
    assert math.isclose(fences.lengths_s.sum, 0.08)
    assert dict(fences.lengths_s.cumulative())[0.025] == 0
    assert dict(fences.lengths_s.cumulative())[0.05] == 2


def test_partition_without_producers_is_not_fenced() -> None:
    fences = FenceDurations(Clock())
    fences.on_leader("t", 1, 0, image(0, 2))  # of the published generation
    fences.on_leader("t", 2, 1, image(0, 2))  # a child, or a retiring partition that is woken
    fences.on_leader("unknown", 0, 1, image(0, 2))
    assert fences.closed == 0


def test_a_leader_that_resigns_is_not_counted() -> None:
    fences = FenceDurations(Clock())
    fences.on_leader("t", 0, 1, image(0, 2))
    fences.on_resign("t", 0)
    fences.on_resign("t", 1)
    fences.on_metadata(image(0, 2), image(1, 4))
    assert (fences.closed, fences.lengths_s.count) == (0, 0)
