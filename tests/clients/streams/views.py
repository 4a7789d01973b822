"""A consumer's state set by tests, for `TaskMachine` without a cluster."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from anabranch.clients.group_metadata import ConsumerGroupMetadata
from anabranch.clients.streams.joined import Reading
from anabranch.protocol.lineage import Lineage
from anabranch.protocol.topic_partition import TopicPartition


@dataclass
class View:
    """A `ConsumerView`. A topic with a lineage has its newest partitions, or those of `present`."""

    positions: dict[TopicPartition, int] = field(default_factory=dict)
    """The assigned partitions."""
    lineages: dict[str, Lineage] = field(default_factory=dict)
    read_to: dict[TopicPartition, Reading] = field(default_factory=dict)
    present: dict[str, Collection[int]] = field(default_factory=dict)
    rebalancing: bool = False
    generation: int = 7

    def assignment(self) -> Collection[TopicPartition]:
        return self.positions.keys()

    def position(self, partition: TopicPartition) -> int:
        return self.positions[partition]

    def key_epoch(self, partition: TopicPartition) -> Reading | None:
        return self.read_to.get(partition)

    def lineage(self, topic: str) -> Lineage | None:
        return self.lineages.get(topic)

    def assigned_lineage(self, topic: str) -> Lineage | None:
        return self.lineages.get(topic)

    def partitions_of(self, topic: str) -> Collection[int]:
        if topic in self.present:
            return self.present[topic]
        return range(self.lineages[topic].count) if topic in self.lineages else ()

    def group_metadata(self) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata("app", self.generation, "one", None)
