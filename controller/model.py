"""The values the controller reasons about: brokers, partitions, topics and the plan of a resize. Frozen; no behaviour
of their own beyond what follows from their fields.

`TopicBody` and `LeaderAndIsr` are exactly what two znodes hold (`controller.zk.znodes` turns them into JSON and
back), so a new controller that has read the znodes knows everything its predecessor had decided (R2, R3).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import field
from typing import Final, NamedTuple

from anabranch.protocol.lineage import Lineage
from anabranch.protocol.topic_partition import TopicPartition as TopicPartition
from anabranch.protocol.values import value
from anabranch.protocol.wire import ZERO_UUID

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class Endpoint(NamedTuple):
    """One advertised listener of a broker."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


@value
class Broker:
    """A registered broker. `epoch` is the czxid of its registration: a restart changes it, nothing else does."""

    id: int
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    features: tuple[tuple[str, int, int], ...] = ()
    """The features that it supports, with their lowest and highest level (KIP-584)."""

    def endpoint(self, listener: str) -> Endpoint | None:
        """Where it is reached by the listener of this name, if it has one."""
        return next((one for one in self.endpoints if one.listener == listener), None)


@value(kw_only=True)
class LeaderAndIsr:
    """A partition's state znode: leadership, and which generation of the topic's lineage it serves since which epoch.

    `gen_start` is [(generation, first leader epoch that serves it)], rising in both; its last entry is the current
    generation. All of it is written at once, so that one leader epoch never serves two generations (R2, invariant I1).
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    leader_recovery_state: int = 0
    generation: int = 0
    gen_start: tuple[tuple[int, int], ...] = ()
    sealed: bool = False
    leader_epoch_after_creation: tuple[tuple[int, int], ...] = ()
    leader_epoch_before_deletion: tuple[tuple[int, int], ...] = ()
    """KIP-253's maps {partition: its leader epoch before the bump}, for its readers; no rule here depends on them."""


@value
class Partition:
    """A committed state together with the version of its znode, which Kafka calls the partition epoch."""

    state: LeaderAndIsr
    epoch: int


@value
class Plan:
    """A resize that was decided and not yet published (R3): from `before` to `after` partitions as `generation`."""

    generation: int
    before: int
    after: int

    @property
    def grows(self) -> bool:
        """Whether partitions are added."""
        return self.after > self.before


@value
class Retired:
    """What remains of a removed partition (R13): the next one of this index continues its epochs and offsets.

    `gen_start` lets consumers that ask for the end of an old segment still find its place: at or before `end_offset`.
    """

    leader_epoch: int
    end_offset: int
    gen_start: tuple[tuple[int, int], ...] = ()


@value(kw_only=True)
class TopicBody:
    """A topic's znode: Kafka's assignment, the counts of KIP-253, and the history of resizes (R1).

    `base` 0 and an empty `history` are those of a znode that a stock tool wrote; the controller completes them.
    `undeleted_partition_count` is what producers write to since the last published generation.
    """

    topic_id: bytes = ZERO_UUID
    assignment: Mapping[int, tuple[int, ...]]
    adding_replicas: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    removing_replicas: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    initial_partition_count: int = -1
    undeleted_partition_count: int = -1
    base: int = -1
    generation: int = 0
    history: tuple[tuple[int, int], ...] = ()
    plan: Plan | None = None
    retired: Mapping[int, Retired] = field(default_factory=dict)
    stamped: bool = False
    """Whether a producer ever wrote a batch stamped with a generation; once True it stays (R16)."""

    @property
    def lineage(self) -> Lineage:
        """The published history."""
        return Lineage(self.base, self.history)

    @property
    def complete(self) -> bool:
        """Whether the fields that a stock tool does not write are there."""
        return self.topic_id != ZERO_UUID and self.base > 0 and bool(self.history)

    @property
    def reassigned(self) -> list[int]:
        """The partitions whose replicas are being moved, by index (KIP-455)."""
        return sorted({index for moves in (self.adding_replicas, self.removing_replicas) for index in moves})

    @property
    def at_work(self) -> bool:
        """Whether a resize, moves of replicas, or the removal of partitions marked for deletion are to be finished."""
        marked = max(self.assignment, default=-1) >= self.undeleted_partition_count
        return marked or self.plan is not None or bool(self.adding_replicas or self.removing_replicas)

    def target(self, index: int) -> tuple[int, ...]:
        """The replicas that a partition is to have: all but those being removed."""
        leaving = self.removing_replicas.get(index, ())
        return tuple(replica for replica in self.assignment.get(index, ()) if replica not in leaving)

    def origin(self, index: int) -> tuple[int, ...]:
        """The replicas that a partition had: all but those being added."""
        coming = self.adding_replicas.get(index, ())
        return tuple(replica for replica in self.assignment.get(index, ()) if replica not in coming)


@value
class Topic:
    """A topic as read or as last written: its znode's body and version, and its configuration."""

    name: str
    body: TopicBody
    version: int
    config: Mapping[str, str]

    @property
    def ordered(self) -> bool:
        """Whether keys are placed, and resized, by generations (KIP-253), or the way Kafka does today.

        `enable.ordered.delivery` decides until the count is changed for the first time. From then on keys lie where one
        of the two ways has put them, and stay with it. The coordinators' own topics are never ordered: their keys are
        placed by the coordinators, not by producers.
        """
        body = self.body
        if self.name in INTERNAL_TOPICS:
            return False
        if body.generation > 0 or body.plan is not None:
            return True
        return self.gated and body.undeleted_partition_count == body.initial_partition_count

    @property
    def gated(self) -> bool:
        """Whether consumers wait at a resize until what came before is read: may be changed at any time."""
        return self.config.get("enable.ordered.delivery", "true").lower() != "false"


@value
class Features:
    """The finalized features of the cluster (KIP-584), and the version of the znode that holds them; -1 without one."""

    levels: Mapping[str, int] = field(default_factory=dict)
    """Feature -> finalized level."""
    epoch: int = -1


class PartitionPhase(enum.Enum):
    """Where a partition is in its life (`partitions.LEGAL`)."""

    NON_EXISTENT = "non-existent"
    NEW = "new"
    ONLINE = "online"
    OFFLINE = "offline"


class ReplicaPhase(enum.Enum):
    """Where a replica is in its life (`replicas.LEGAL`)."""

    NON_EXISTENT = "non-existent"
    NEW = "new"
    ONLINE = "online"
    OFFLINE = "offline"
    DELETION_STARTED = "deletion started"
    DELETION_SUCCESSFUL = "deletion successful"
    DELETION_INELIGIBLE = "deletion ineligible"
