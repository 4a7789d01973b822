"""Resolves "earliest", "latest", an offset or a time into offsets of every partition, on the driver.

A shell around `reader`; `source_options` and `ranges` define the queries.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from anabranch.spark_jobs.reader import TopicReader
from anabranch.spark_jobs.source_options import EARLIEST, LATEST, Offsets, Options, Position


class Positions:
    """Looks up offsets of the topics of a query."""

    def __init__(self, options: Options, reader: TopicReader | None = None) -> None:
        self._options = options
        self._reader = reader or TopicReader(options.servers, options.secured)
        self._ids: dict[str, str] = {}

    def close(self) -> None:
        """Disconnect."""
        self._reader.close()

    def bound(self, at: int) -> Offsets:
        """Return the first (EARLIEST) or next (LATEST) offset of every existing partition."""
        return {topic: self._ask(topic, at) for topic in self._topics()}

    def resolve(self, position: Position) -> Offsets:
        """Return a position's offset in every partition. Raises ValueError if it omits some, or has none there."""
        if position.bound is not None:
            return self.bound(position.bound)
        if position.offsets is not None:
            return self._given_offsets(position.offsets)
        found = {}
        for topic in self._topics():
            times_ms = (position.times_ms or {}).get(topic, {})
            indexes = self._ask(topic, LATEST)
            if position.time_ms is not None:
                times_ms = dict.fromkeys(indexes, position.time_ms)
            _check_all_named(topic, indexes, times_ms)
            found[topic] = self._at_times(topic, times_ms, indexes)
        return found

    def check_identity(self) -> None:
        """Raise RuntimeError if a topic was recreated: offsets of the old one are invalid in it."""
        for topic in self._topics():
            identity = self._reader.topic_id(topic)
            if self._ids.setdefault(topic, identity) != identity:
                raise RuntimeError(f"{topic} was deleted and created again: offsets of the old topic are not valid")

    def _topics(self) -> list[str]:
        if self._options.pattern is None:
            return list(self._options.topics)
        return [name for name in self._reader.topics() if re.fullmatch(self._options.pattern, name)]

    def _ask(self, topic: str, at: int) -> dict[str, int]:
        offsets = self._reader.offsets(topic, at, committed_only=self._options.committed_only)
        partitions = self._options.assigned.get(topic)
        if partitions is not None and not set(partitions) <= offsets.keys():
            missing = ", ".join(str(index) for index in partitions if index not in offsets)
            raise ValueError(f"assign: {topic} has no partition {missing}")
        return {
            str(index): offset for index, offset in sorted(offsets.items()) if partitions is None or index in partitions
        }

    def _given_offsets(self, given: Mapping[str, Mapping[str, int]]) -> Offsets:
        found: Offsets = {}
        for topic in self._topics():
            earliest, latest = self._ask(topic, EARLIEST), self._ask(topic, LATEST)
            offsets = given.get(topic, {})
            _check_all_named(topic, latest, offsets)
            bounds = {EARLIEST: earliest, LATEST: latest}
            found[topic] = {
                index: bounds[offset][index] if offset in bounds else offset for index, offset in offsets.items()
            }
        return found

    def _at_times(self, topic: str, times_ms: Mapping[str, int], latest: Mapping[str, int]) -> dict[str, int]:
        offsets = self._reader.offsets(topic, {int(index): time_ms for index, time_ms in times_ms.items()})
        found = {str(index): offset for index, offset in offsets.items()}
        late = sorted(index for index, offset in found.items() if offset < 0)
        if late and not self._options.late_times_are_latest:
            raise ValueError(
                f"{topic} has no record at or after the given time in partition {', '.join(late)} "
                "(startingOffsetsByTimestampStrategy=latest begins at its end)"
            )
        return {index: latest[index] if offset < 0 else offset for index, offset in found.items()}


def _check_all_named(topic: str, indexes: Mapping[str, int], given: Mapping[str, object]) -> None:
    if missing := sorted(indexes.keys() - given.keys()):
        raise ValueError(f"offsets are given for some partitions of {topic}, and not for {', '.join(missing)}")
    if unknown := sorted(given.keys() - indexes.keys()):
        raise ValueError(f"offsets are given for {topic}-{', '.join(unknown)}, which does not exist")
