"""Computes an application's tasks from the current partitions of its inputs.

A subtopology is a part of the application that only topics connect with the rest. It has one task for each partition
index that one of its sources has; topics with fewer partitions contribute nothing to the others. Its stores have
changelogs, with a partition per task; a subtopology that regroups records for another one writes to a repartition
topic, as wide as the widest source that feeds it.

All existing partition indexes count: after a merge draining ones remain until they are empty, with their tasks. Source:
PartitionGrouper, RepartitionTopics, ChangelogTopics of Kafka Streams.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from anabranch.clients.metadata import Topic
from anabranch.clients.streams import joined
from anabranch.clients.streams.streams_errors import StreamsError
from anabranch.clients.streams.task_id import TaskId
from anabranch.protocol import linear_hashing
from anabranch.protocol.lineage import Lineage
from anabranch.protocol.topic_partition import TopicPartition
from anabranch.protocol.values import value

Partitions = Mapping[str, Collection[int]]
"""The partition indexes of each existing topic."""


class MissingSourceTopic(Exception):
    """A topic that the application reads does not exist."""


class TaskAssignmentError(StreamsError):
    """The topics or the members of the group do not allow any assignment."""


@value(kw_only=True)
class TopicsInfo:
    """The topics of one subtopology."""

    source_topics: frozenset[str]
    """Its source topics, including repartition topics."""
    sink_topics: frozenset[str] = frozenset()
    """Its relevant output topics: the repartition topics of others."""
    repartition_topics: Mapping[str, int | None] = dataclasses.field(default_factory=dict)
    """Its sources that the application creates itself -> the configured partitions, if any."""
    changelog_topics: frozenset[str] = frozenset()
    """One per store; a source topic may serve as its own table's changelog."""
    copartitioned: tuple[frozenset[str], ...] = ()
    """Groups of sources that must have the same number of partitions, because they are joined."""


SubtopologyTopics = Sequence[TopicsInfo]
"""The topics of each subtopology, by number."""


def repartition_counts(
    topology: SubtopologyTopics, partitions: Partitions, lineages: Mapping[str, Lineage] | None = None
) -> dict[str, int]:
    """Return the partition count of each repartition topic. Raises MissingSourceTopic, TaskAssignmentError."""
    made = {topic: count for part in topology for topic, count in part.repartition_topics.items()}
    missing = sorted({topic for part in topology for topic in part.source_topics - made.keys()} - partitions.keys())
    if missing:
        raise MissingSourceTopic(f"missing source topics: {', '.join(missing)}")
    counts = {topic: count for topic, count in made.items() if count is not None}
    unknown = sorted(topic for topic, count in made.items() if count is None)
    while unknown:
        found = {topic: width for topic in unknown if (width := _widest_feeder(topic, topology, partitions, counts))}
        if not found:
            known = ((one, _widest_feeder(one, topology, partitions, counts, among_known=True)) for one in unknown)
            found = {topic: width for topic, width in known if width}
        if not found:
            raise TaskAssignmentError(f"cannot compute the partition counts of: {', '.join(unknown)}")
        counts |= found
        unknown = [topic for topic in unknown if topic not in found]
    chosen = frozenset(topic for topic, count in made.items() if count)
    _equalise(topology, partitions, counts, chosen, lineages or {})
    return counts


def _widest_feeder(
    topic: str,
    topology: SubtopologyTopics,
    partitions: Partitions,
    counts: Mapping[str, int],
    *,
    among_known: bool = False,
) -> int | None:
    """Return the width of the widest source that feeds a topic; None while one is unknown.

    `among_known` leaves unknown ones out: a topic may be read by tasks that it is written by.
    """
    sources = {source for part in topology if topic in part.sink_topics for source in part.source_topics}
    widths = [counts.get(source) or _width(partitions.get(source, ())) for source in sources]
    return max(widths) if widths and (among_known or all(widths)) else None


def _equalise(
    topology: SubtopologyTopics,
    partitions: Partitions,
    counts: dict[str, int],
    chosen: frozenset[str],
    lineages: Mapping[str, Lineage],
) -> None:
    """Give joined repartition topics the width of their partners.

    Topics that are resized alike differ only temporarily: the one that was resized first waits. If all partners are
    repartition topics, those that exist keep their width whatever the inputs have now, and so decide.
    """
    for group in (group for part in topology for group in part.copartitioned):
        fixed = {topic: counts[topic] if topic in counts else _width(partitions[topic]) for topic in group}
        given = {topic: width for topic, width in fixed.items() if topic not in counts or topic in chosen}
        if given and given.keys() <= lineages.keys():
            reason = joined.mismatch({topic: lineages[topic] for topic in given})
            if reason is not None:
                raise TaskAssignmentError(reason)
        elif len(set(given.values())) > 1:
            described = ", ".join(f"{topic} has {width}" for topic, width in sorted(given.items()))
            raise TaskAssignmentError(f"joined topics must have equal partition counts: {described}")
        existing = [_width(partitions[topic]) for topic in group & counts.keys() if topic in partitions]
        width = max(given.values() or existing or fixed.values())
        counts.update(dict.fromkeys(group & counts.keys(), width))


def _width(indexes: Collection[int]) -> int:
    return max(indexes, default=-1) + 1


def partitions_of_tasks(
    topology: SubtopologyTopics, partitions: Partitions
) -> dict[TaskId, tuple[TopicPartition, ...]]:
    """Return every task with its source partitions."""
    tasks: dict[TaskId, list[TopicPartition]] = {}
    for number, part in enumerate(topology):
        for topic in sorted(part.source_topics):
            for index in sorted(partitions.get(topic, ())):
                tasks.setdefault(TaskId(number, index), []).append(TopicPartition(topic, index))
    return {task: tuple(tasks[task]) for task in sorted(tasks)}


def changelogs_of_tasks(
    topology: SubtopologyTopics, tasks: Collection[TaskId]
) -> dict[TaskId, tuple[TopicPartition, ...]]:
    """Return the changelog partitions of every stateful task."""
    return {
        task: tuple(
            TopicPartition(topic, task.partition) for topic in sorted(topology[task.subtopology].changelog_topics)
        )
        for task in tasks
        if topology[task.subtopology].changelog_topics
    }


def changelog_counts(changelogs: Mapping[TaskId, Sequence[TopicPartition]]) -> dict[str, int]:
    """Return the partition count of each changelog topic."""
    counts: dict[str, int] = {}
    for partitions in changelogs.values():
        for topic, index in partitions:
            counts[topic] = max(counts.get(topic, 0), index + 1)
    return counts


def removed_tasks(
    topology: SubtopologyTopics, topics: Mapping[str, Topic], owned: Collection[TopicPartition]
) -> dict[TaskId, TaskId]:
    """Return stateful tasks of removed partitions without an owner -> the tasks that have their keys now.

    All of a task's topics must lack the partition; while one still has it, its state is not handed over yet.
    """
    found: dict[TaskId, TaskId] = {}
    for number, part in enumerate(topology):
        read = [topics[name] for name in part.source_topics if name in topics]
        lineages = [topic.lineage for topic in read if topic.lineage is not None]
        if len(lineages) < len(part.source_topics) or not part.changelog_topics:
            continue
        narrowest = min(lineages, key=lambda one: one.count)
        for index in range(narrowest.count, max(count for _, count in narrowest.history)):
            gone = all(
                joined.removed_reading(one, index, topic.partitions) for one, topic in zip(lineages, read, strict=True)
            )
            if gone and not any(TopicPartition(topic.name, index) in owned for topic in read):
                heir = linear_hashing.ancestor(index, narrowest.count, narrowest.base)
                found[TaskId(number, index)] = TaskId(number, heir)
    return found
