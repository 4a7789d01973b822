"""Measures how long a resize makes the leader of a partition refuse its producers: the *fence*.

    closed   the leader takes up a class generation above the topic's published one: whatever producers know, it refuses
    open     this broker's metadata shows that generation published: producers that ask learn of it

Only partitions that the published generation writes to are fenced: a child that a growth creates, or a retiring
partition that it wakes, has no producers to refuse. A leader that resigns is not asked how it went on; its successor
takes up the same generation and has a fence of its own. Rules R4 and R12 of the resize design.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from anabranch.broker.metrics.histogram import Histogram

if TYPE_CHECKING:
    from anabranch.broker.metadata.metadata_cache import ClusterImage

BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class FenceDurations:
    """The fences of the partitions that one broker leads."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self.lengths_s = Histogram(BOUNDS_S)
        """How long the fences were closed that have opened again, in seconds."""
        self._clock_s = clock_s
        self._closed: dict[tuple[str, int], tuple[int, float]] = {}

    @property
    def closed(self) -> int:
        """How many partitions refuse their producers now."""
        return len(self._closed)

    def on_leader(self, topic: str, index: int, generation: int, image: ClusterImage) -> None:
        """This broker leads a partition that serves `generation`, while clients are shown `image`."""
        shown = image.topics.get(topic)
        if shown is None or generation <= shown.generation or index >= shown.undeleted_partition_count:
            self._closed.pop((topic, index), None)
        elif self._closed.get((topic, index), (-1, 0.0))[0] != generation:
            self._closed[topic, index] = generation, self._clock_s()

    def on_resign(self, topic: str, index: int) -> None:
        """Note that this broker does not lead a partition (any more)."""
        self._closed.pop((topic, index), None)

    def on_metadata(self, _: ClusterImage, after: ClusterImage) -> None:
        """Note a new image, which may publish a generation and so open fences."""
        for (topic, index), (generation, since_s) in list(self._closed.items()):
            shown = after.topics.get(topic)
            if shown is not None and shown.generation >= generation:
                del self._closed[topic, index]
                self.lengths_s.observe(self._clock_s() - since_s)
