"""An application's topology in this cluster: its task counts, and the topics that are missing.

A subtopology has a task for each partition of its largest source. A repartition topic without a set count has as many
partitions as the subtopology that writes to it has tasks; a changelog has one per task. Copartitioned topics need equal
partition counts. A topology is *ready* when all topics exist with the required counts.

An existing topic counts as it is: if a source grows, the topics that depend on it have wrong counts, and the topology
is not ready until an administrator corrects them.

Source: KIP-1071; Kafka's InternalTopicManager, RepartitionTopics, CopartitionedTopicsEnforcer and ChangelogTopics, 4.2.
Kafka compares all repartition topics with set counts; this module compares only copartitioned ones.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Final

from anabranch.broker.coordinators.consumer_groups.subscribed_topics import FindTopic
from anabranch.protocol.apis.streams_group_heartbeat import Subtopology, TopicInfo
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.streams_group_records import StreamsGroupTopologyValue
from anabranch.protocol.values import slotted

STALE_TOPOLOGY: Final = 0
MISSING_SOURCE_TOPICS: Final = 1
INCORRECTLY_PARTITIONED_TOPICS: Final = 2
MISSING_INTERNAL_TOPICS: Final = 3
SHUTDOWN_APPLICATION: Final = 4
ASSIGNMENT_DELAYED: Final = 5
"""The codes of a status in StreamsGroupHeartbeat."""

PARTITIONS_MAX: Final = 10_000
"""The limit for repartition topics, checked before any structure of that size is allocated."""
TASKS_MAX: Final = 100_000
"""The limit for tasks and internal partitions of one topology, for the same reason."""
SHOWN_MAX: Final = 3
Counts = Mapping[str, int]
"""Topic -> its current or required partition count."""
Find = Callable[[str], int | None]
"""Returns the partition count of a topic in the cluster; None if it does not exist."""


@slotted(kw_only=True)
class ConfiguredSubtopology:
    """A subtopology with the partition counts of its topics."""

    subtopology: Subtopology
    task_count: int
    counts: Counts = field(default_factory=dict)
    """The counts of its repartition topics and changelogs."""

    @property
    def stateful(self) -> bool:
        """Whether its tasks have state that standbys can copy."""
        return bool(self.subtopology.state_changelog_topics)

    @property
    def sources(self) -> list[str]:
        """The topics that its tasks read."""
        return sorted(
            {*self.subtopology.source_topics, *(one.name for one in self.subtopology.repartition_source_topics)}
        )


@slotted(kw_only=True)
class ConfiguredTopology:
    """A topology in this cluster; it is not ready if it has a status."""

    status: int | None = None
    detail: str = ""
    missing: tuple[tuple[TopicInfo, int], ...] = ()
    """Internal topics to create, each with its partition count."""
    subtopologies: Mapping[str, ConfiguredSubtopology] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        """Whether tasks can be assigned."""
        return self.status is None


class _InvalidTopology(Exception):
    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


def check_topology(subtopologies: Iterable[Subtopology]) -> None:
    """Validate a topology independently of the cluster. Raises STREAMS_INVALID_TOPOLOGY."""
    known: set[str] = set()
    for one in subtopologies:
        name, between = one.subtopology_id, one.repartition_source_topics
        _demand(name not in known, f"subtopology {name} appears twice")
        known.add(name)
        _demand(bool(one.source_topics or between), f"subtopology {name} has no source topics")
        for topic in one.state_changelog_topics:
            _demand(
                topic.partitions == 0,
                f"changelog {topic.name} has one partition per task: its partition count cannot be set",
            )
        for topic in between:
            _demand(0 <= topic.partitions <= PARTITIONS_MAX, f"{topic.name} cannot have {topic.partitions} partitions")
        for group in one.copartition_groups:
            _demand(
                all(0 <= place < len(one.source_topics) for place in group.source_topics)
                and all(0 <= place < len(between) for place in group.repartition_source_topics),
                f"a copartition group of subtopology {name} names unknown topics",
            )


def _demand(met: bool, message: str) -> None:
    if not met:
        raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


def required_topics(subtopologies: Iterable[Subtopology]) -> frozenset[str]:
    """Return all topics that must exist before tasks can be assigned."""
    return frozenset(
        name
        for one in subtopologies
        for name in (
            *one.source_topics,
            *(topic.name for topic in (*one.repartition_source_topics, *one.state_changelog_topics)),
        )
    )


def is_same_topology(one: StreamsGroupTopologyValue, other: StreamsGroupTopologyValue) -> bool:
    """Return whether two topologies are equal, ignoring the order of subtopologies."""
    return one.epoch == other.epoch and _by_id(one.subtopologies) == _by_id(other.subtopologies)


def _by_id(subtopologies: Iterable[Subtopology]) -> dict[str, Subtopology]:
    return {one.subtopology_id: one for one in subtopologies}


def configure(topology: StreamsGroupTopologyValue, find: FindTopic) -> ConfiguredTopology:
    """Configure a topology. Raises STREAMS_INVALID_TOPOLOGY if partition counts depend on each other."""
    subtopologies = sorted(topology.subtopologies, key=_place)

    def there(name: str) -> int | None:
        topic = find(name)
        return None if topic is None else len(topic.partitions)

    missing = {name for one in subtopologies for name in one.source_topics if there(name) is None}
    try:
        if missing:
            raise _InvalidTopology(MISSING_SOURCE_TOPICS, f"source topics do not exist: {summary(missing)}")
        decided = repartition_counts(subtopologies, there)
        _keep_together(subtopologies, decided, there)
        made = {one.subtopology_id: _configure(one, decided, there) for one in subtopologies}
        total = sum(one.task_count + sum(one.counts.values()) for one in made.values())
        _demand(total <= TASKS_MAX, f"{total} tasks and repartition partitions exceed {TASKS_MAX}")
        return _with_what_is_missing(made, there)
    except _InvalidTopology as wrong:
        return ConfiguredTopology(status=wrong.status, detail=str(wrong))


def _place(one: Subtopology) -> tuple[int, str]:
    """Return the sort key of an id; ids are numbers."""
    return len(one.subtopology_id), one.subtopology_id


def summary(names: Iterable[str]) -> str:
    """Format the first topics, and the number of the others."""
    shown = sorted(names)
    more = f" and {len(shown) - SHOWN_MAX} more" if len(shown) > SHOWN_MAX else ""
    return ", ".join(shown[:SHOWN_MAX]) + more


def repartition_counts(subtopologies: list[Subtopology], there: Find) -> dict[str, int]:
    """Compute the partition count of each repartition topic. Raises STREAMS_INVALID_TOPOLOGY.

    Kafka iterates over the subtopologies until all counts are known: one with a known source gives its sinks the
    largest count so far. This function gives the same result, but visits a subtopology only when it can proceed.
    """
    counts: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    for place, one in enumerate(subtopologies):
        for topic in one.repartition_source_topics:
            readers.setdefault(topic.name, []).append(place)
            if topic.partitions:
                counts[topic.name] = topic.partitions
    turns = [(0, place) for place, one in enumerate(subtopologies) if _widest(one, counts, there)]
    done: set[int] = set()
    while turns:
        turn, place = heapq.heappop(turns)
        if place in done:
            continue
        done.add(place)
        count = _widest(subtopologies[place], counts, there)
        for sink in subtopologies[place].repartition_sink_topics:
            if sink not in counts:
                counts[sink] = count
                for reader in readers.get(sink, ()):
                    heapq.heappush(turns, (turn + (reader <= place), reader))
    sinks = {sink for one in subtopologies for sink in one.repartition_sink_topics}
    _demand(sinks <= counts.keys(), f"partition counts depend on each other: {summary(sinks - counts.keys())}")
    _demand(readers.keys() <= counts.keys(), f"nothing writes to {summary(readers.keys() - counts.keys())}")
    return counts


def _widest(one: Subtopology, counts: Counts, there: Find) -> int:
    """Return the largest known partition count of a subtopology's sources; 0 if none is known."""
    between = [counts.get(topic.name, 0) for topic in one.repartition_source_topics]
    return max([*between, *(there(name) or 0 for name in one.source_topics)], default=0)


def _keep_together(subtopologies: Iterable[Subtopology], decided: dict[str, int], there: Find) -> None:
    """Give copartitioned topics the same count. Raises _InvalidTopology if that is impossible."""
    for one in subtopologies:
        for group in one.copartition_groups:
            between = [one.repartition_source_topics[place] for place in group.repartition_source_topics]
            outside = {name: there(name) or 0 for name in (one.source_topics[place] for place in group.source_topics)}
            counts = {topic.name: there(topic.name) or decided[topic.name] for topic in between}
            fixed = {topic.name: counts[topic.name] for topic in between if topic.partitions}
            leading = outside or fixed or dict.fromkeys(["the widest"], max(counts.values(), default=0))
            if len({*leading.values(), *fixed.values()}) > 1:
                rows = ", ".join(f"{name} has {count}" for name, count in sorted({**leading, **fixed}.items()))
                raise _InvalidTopology(
                    INCORRECTLY_PARTITIONED_TOPICS, f"copartitioned topics have different partition counts: {rows}"
                )
            decided |= dict.fromkeys(counts, next(iter(leading.values())))


def _configure(one: Subtopology, decided: Counts, there: Find) -> ConfiguredSubtopology:
    def count_of(name: str) -> int:
        return there(name) or decided[name]

    sources = (*one.source_topics, *(topic.name for topic in one.repartition_source_topics))
    task_count = max(map(count_of, sources))
    counts = {topic.name: topic.partitions or decided[topic.name] for topic in one.repartition_source_topics}
    counts |= {topic.name: task_count for topic in one.state_changelog_topics}
    return ConfiguredSubtopology(subtopology=one, task_count=task_count, counts=counts)


def _with_what_is_missing(made: Mapping[str, ConfiguredSubtopology], there: Find) -> ConfiguredTopology:
    missing: dict[str, tuple[TopicInfo, int]] = {}
    for one in made.values():
        for topic in (*one.subtopology.repartition_source_topics, *one.subtopology.state_changelog_topics):
            expected, found = one.counts[topic.name], there(topic.name)
            if found is None:
                missing[topic.name] = topic, expected
            elif found != expected:
                raise _InvalidTopology(
                    INCORRECTLY_PARTITIONED_TOPICS, f"{topic.name} has {found} partitions, expected {expected}"
                )
    if not missing:
        return ConfiguredTopology(subtopologies=made)
    return ConfiguredTopology(
        status=MISSING_INTERNAL_TOPICS,
        detail=f"internal topics do not exist: {summary(missing)}",
        missing=tuple(missing[name] for name in sorted(missing)),
        subtopologies=made,
    )
