"""The active controller's state: live brokers, topics, committed partition states, and ongoing work.

Everything here is either a copy of a znode or can be derived again from znodes by the next controller. `check` states
what must hold between events.

An event's cost depends on its changes, not on the number of topics: the state also indexes the topics and partitions
with work to do. `put_topic`, `believe`, `set_phase` and the methods that forget are the only ones that change this
state, so that the indexes stay consistent (`check_all`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Final

from anabranch.controller.model import Broker, Features, Partition, PartitionPhase, ReplicaPhase, Topic, TopicPartition
from anabranch.controller.settings import ControllerSettings
from anabranch.protocol.apis.create_partitions import CreatePartitionsTopic, CreatePartitionsTopicResult
from anabranch.protocol.errors import KafkaError
from anabranch.protocol.values import slotted
from anabranch.protocol.wire import ZERO_UUID

LEADERLESS: Final = frozenset({PartitionPhase.NEW, PartitionPhase.OFFLINE})


@slotted
class WaitingResize:
    """A requested partition count in its topic's queue or, once `started`, waiting for its resize to be published."""

    token: int
    requested: CreatePartitionsTopic
    validate_only: bool = False
    barred: KafkaError | None = None
    """The error if the request turns out to be a shrink."""
    started: bool = False
    first_added: int = 0
    """The first partition that the started resize adds."""


@slotted
class PendingReply:
    """A CreatePartitions request: the results so far, None for unfinished topics."""

    results: dict[str, CreatePartitionsTopicResult | None]
    open_count: int = 0
    """The number of missing results: counted, because each of many results checks whether it is the last."""

    def __post_init__(self) -> None:
        self.open_count = sum(one is None for one in self.results.values())

    def note(self, row: CreatePartitionsTopicResult) -> None:
        """Note the result of one topic."""
        self.open_count -= self.results[row.name] is None
        self.results[row.name] = row


@slotted
class Adoption:
    """The newest leader epoch that a partition's leader has confirmed, with the broker and its broker epoch."""

    broker_id: int
    broker_epoch: int
    leader_epoch: int


@slotted
class ClusterState:
    """The whole state of the controller."""

    settings: ControllerSettings
    controller_epoch: int
    brokers: dict[int, Broker] = field(default_factory=dict)
    shutting_down: set[int] = field(default_factory=set)
    topics: dict[str, Topic] = field(default_factory=dict)
    names: dict[bytes, str] = field(default_factory=dict)
    partitions: dict[TopicPartition, Partition] = field(default_factory=dict)
    phases: dict[TopicPartition, PartitionPhase] = field(default_factory=dict)
    replica_phases: dict[TopicPartition, dict[int, ReplicaPhase]] = field(default_factory=dict)
    indices: dict[str, set[int]] = field(default_factory=dict)
    """Topic -> partitions with a phase; others are unknown."""
    leaderless: dict[TopicPartition, None] = field(default_factory=dict)
    """New and offline partitions of topics that are not being deleted, in the order in which they became so."""
    at_work: set[str] = field(default_factory=set)
    """Topics with unfinished work in their znodes (`TopicBody.at_work`)."""
    deleting: set[str] = field(default_factory=set)
    deletable: set[str] = field(default_factory=set)
    """Topics being deleted with replicas that may have to receive StopReplica, possibly again."""
    touched: set[TopicPartition] = field(default_factory=set)
    """Partitions whose state or phase has changed since the last `check`."""
    adopted: dict[TopicPartition, Adoption] = field(default_factory=dict)
    unanswered: dict[str, set[int]] = field(default_factory=dict)
    """Topic -> partitions whose leader has not answered a new state yet."""
    held_back: set[str] = field(default_factory=set)
    """Topics with new partitions that are created after leaders have answered about earlier ones."""
    log_starts: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """Partition marked for deletion -> (leader epoch, log start offset) as last reported."""
    removals: dict[TopicPartition, set[int]] = field(default_factory=dict)
    """Retired partition -> brokers that have not confirmed its deletion yet."""
    to_remind: set[tuple[int, TopicPartition]] = field(default_factory=set)
    """Replicas whose broker failed to adopt their state, because its disk failed."""
    waiting: dict[str, deque[WaitingResize]] = field(default_factory=dict)
    replies: dict[int, PendingReply] = field(default_factory=dict)
    features: Features = field(default_factory=Features)

    @property
    def live(self) -> frozenset[int]:
        """The brokers that may become leaders."""
        return frozenset(self.brokers.keys() - self.shutting_down)

    def assignment(self, partition: TopicPartition) -> tuple[int, ...]:
        """Return the replicas of a partition; empty if it is unknown."""
        topic = self.topics.get(partition.topic)
        return () if topic is None else topic.body.assignment.get(partition.partition, ())

    def partitions_of(self, name: str) -> Iterator[TopicPartition]:
        """Yield the partitions of a topic, by index."""
        for index in sorted(self.topics[name].body.assignment):
            yield TopicPartition(name, index)

    def all_partitions(self) -> Iterator[TopicPartition]:
        """Yield every partition of every topic that is not being deleted."""
        for name in self.topics:
            if name not in self.deleting:
                yield from self.partitions_of(name)

    def hosted_by(self, broker_ids: Iterable[int]) -> Iterator[TopicPartition]:
        """Yield the partitions, of topics that are not being deleted, with a replica on one of these brokers."""
        brokers = set(broker_ids)
        for partition in self.all_partitions():
            if not brokers.isdisjoint(self.assignment(partition)):
                yield partition

    def phase(self, partition: TopicPartition) -> PartitionPhase:
        """Return the phase of a partition; non-existent if it is unknown."""
        return self.phases.get(partition, PartitionPhase.NON_EXISTENT)

    def online_replicas(self, partition: TopicPartition) -> list[int]:
        """Return the replicas that a request can reach."""
        return [replica for replica in self.assignment(partition) if replica in self.brokers]

    def put_topic(self, topic: Topic) -> None:
        """Set a topic as read or written."""
        self.topics[topic.name] = topic
        if topic.body.topic_id != ZERO_UUID:
            self.names[topic.body.topic_id] = topic.name
        if topic.body.at_work:
            self.at_work.add(topic.name)
        else:
            self.at_work.discard(topic.name)

    def believe(self, partition: TopicPartition, committed: Partition) -> None:
        """Set the committed state of a partition."""
        self.partitions[partition] = committed
        self.touched.add(partition)

    def set_phase(self, partition: TopicPartition, phase: PartitionPhase) -> None:
        """Set the phase of a partition."""
        self.phases[partition] = phase
        self.touched.add(partition)
        self.indices.setdefault(partition.topic, set()).add(partition.partition)
        if phase in LEADERLESS and partition.topic not in self.deleting:
            self.leaderless[partition] = None
        else:
            self.leaderless.pop(partition, None)

    def replica_phase(self, partition: TopicPartition, replica: int) -> ReplicaPhase:
        """Return the phase of a replica."""
        return self.replica_phases.get(partition, {}).get(replica, ReplicaPhase.NON_EXISTENT)

    def delete_from_now_on(self, name: str) -> None:
        """Begin the deletion of a topic: its partitions get no leader any more."""
        self.deleting.add(name)
        for index in self.indices.get(name, ()):
            self.leaderless.pop(TopicPartition(name, index), None)

    def forget_partition(self, partition: TopicPartition) -> None:
        """Drop all state of a partition."""
        for known in (
            *(self.partitions, self.phases, self.replica_phases, self.leaderless),
            *(self.adopted, self.log_starts, self.removals),
        ):
            known.pop(partition, None)
        self.touched.discard(partition)
        for of_topic in (self.indices, self.unanswered):
            of_topic.get(partition.topic, set()).discard(partition.partition)

    def forget_topic(self, name: str) -> None:
        """Drop all state of a topic."""
        for index in list(self.indices.get(name, ())):
            self.forget_partition(TopicPartition(name, index))
        topic = self.topics.pop(name, None)
        for known in (self.deleting, self.deletable, self.at_work, self.held_back):
            known.discard(name)
        for of_topic in (self.indices, self.unanswered):
            of_topic.pop(name, None)
        if topic is not None:
            self.names.pop(topic.body.topic_id, None)

    def check(self) -> None:
        """Check the invariants that hold between events, for changes since the last check.

        A violation is a bug and ends this controller's tenure with an error.
        """
        for partition in self.touched:
            self._check(partition)
        self.touched.clear()

    def check_all(self) -> None:
        """Check the invariants of the whole state, and that its indexes are consistent."""
        self.touched.clear()
        for partition in self.partitions:
            self._check(partition)
        known = {partition for partition in self.phases if partition.topic not in self.deleting}
        assert set(self.leaderless) == {one for one in known if self.phases[one] in LEADERLESS}
        assert self.at_work == {topic.name for topic in self.topics.values() if topic.body.at_work}
        assert self.phases.keys() >= self.partitions.keys() | self.replica_phases.keys() | self.adopted.keys()
        assert self.phases.keys() == {TopicPartition(name, one) for name in self.indices for one in self.indices[name]}
        assert self.topics.keys() >= self.indices.keys() | self.deleting | self.held_back
        assert all(self.indices[name] >= self.unanswered[name] for name in self.unanswered)
        assert self.deleting >= self.deletable

    def _check(self, partition: TopicPartition) -> None:
        committed = self.partitions.get(partition)
        if committed is None:
            return
        state = committed.state
        assert partition.topic in self.topics, f"{partition}: a state without a topic"
        assert state.isr, f"{partition}: an empty ISR"
        assert state.leader == -1 or state.leader in state.isr, f"{partition}: leader {state.leader} not in its ISR"
        assert state.controller_epoch <= self.controller_epoch, f"{partition}: written by a later controller"
        if state.gen_start:
            assert state.gen_start[-1][0] == state.generation, f"{partition}: generation without its first epoch"
            assert state.gen_start[-1][1] <= state.leader_epoch, f"{partition}: a generation that begins later"
        if self.phase(partition) is PartitionPhase.ONLINE:
            assert state.leader != -1, f"{partition}: online without a leader"
