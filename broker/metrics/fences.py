"""Measures how long a partition's leader refuses its producers during a resize: the *fence*.

    closed   the leader adopts a class generation above the topic's published one, and refuses all producers
    open     this broker's metadata cache holds that generation as published, and producers can refresh their metadata

Only partitions to which the published generation writes have a fence: a new child, or a reused retiring partition, has
no producers. The fence of a leader that resigns is discarded; its successor adopts the same generation and measures its
own. Rules R4 and R12 of the resize design.
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
        """The durations of fences that have opened, in seconds."""
        self._clock_s = clock_s
        self._closed: dict[tuple[str, int], tuple[int, float]] = {}

    @property
    def closed(self) -> int:
        """The number of partitions that refuse their producers now."""
        return len(self._closed)

    def on_leader(self, topic: str, index: int, generation: int, image: ClusterImage) -> None:
        """Close the fence of a led partition whose class generation `image` has not published yet."""
        shown = image.topics.get(topic)
        if shown is None or generation <= shown.generation or index >= shown.undeleted_partition_count:
            self._closed.pop((topic, index), None)
        elif self._closed.get((topic, index), (-1, 0.0))[0] != generation:
            self._closed[topic, index] = generation, self._clock_s()

    def on_resign(self, topic: str, index: int) -> None:
        """Discard the fence of a partition that this broker no longer leads."""
        self._closed.pop((topic, index), None)

    def on_metadata(self, _: ClusterImage, after: ClusterImage) -> None:
        """Open the fences whose generation a new image publishes."""
        for (topic, index), (generation, since_s) in list(self._closed.items()):
            shown = after.topics.get(topic)
            if shown is not None and shown.generation >= generation:
                del self._closed[topic, index]
                self.lengths_s.observe(self._clock_s() - since_s)
