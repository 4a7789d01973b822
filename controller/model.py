"""The controller's values: brokers, partitions, topics and the plan of a resize. Frozen; methods only derive from
fields.

`TopicBody` and `LeaderAndIsr` are exactly the contents of two znodes (`controller.zk.znodes` converts them to and from
JSON), so a new controller that has read the znodes knows every decision of its predecessor (R2, R3).
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
    """A registered broker. `epoch` is the czxid of its registration; only a new registration changes it."""

    id: int
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    features: tuple[tuple[str, int, int], ...] = ()
    """Supported features, with their lowest and highest level (KIP-584)."""

    def endpoint(self, listener: str) -> Endpoint | None:
        """Return the endpoint of this listener, None if it has none."""
        return next((one for one in self.endpoints if one.listener == listener), None)


@value(kw_only=True)
class LeaderAndIsr:
    """A partition's state znode: its leadership, and the generation that it serves since which epoch.

    `gen_start` is [(generation, first leader epoch that serves it)], rising in both; its last entry is the current
    generation. One write replaces all of it, so one leader epoch never serves two generations (R2, invariant I1).
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
    """KIP-253's maps {partition: its leader epoch before the bump}, for other readers; no rule here uses them."""


@value
class Partition:
    """A committed state with the version of its znode, which Kafka calls the partition epoch."""

    state: LeaderAndIsr
    epoch: int


@value
class Plan:
    """A resize that is decided and not yet published (R3): from `before` to `after` partitions as `generation`."""

    generation: int
    before: int
    after: int

    @property
    def grows(self) -> bool:
        """Whether partitions are added."""
        return self.after > self.before


@value
class Retired:
    """The tombstone of a removed partition (R13): the next one of this index continues its epochs and offsets.

    `gen_start` lets consumers still find the end of an old key epoch: at or before `end_offset`.
    """

    leader_epoch: int
    end_offset: int
    gen_start: tuple[tuple[int, int], ...] = ()


@value(kw_only=True)
class TopicBody:
    """A topic's znode: Kafka's assignment, the counts of KIP-253, and the history of resizes (R1).

    A znode written by a stock tool has `base` 0 and an empty `history`; the controller completes them.
    `undeleted_partition_count` is the number of partitions that producers write to since the last published generation.
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
    has_generations: bool = False
    """Whether a producer ever wrote a batch with a generation; once True it stays (R16)."""

    @property
    def lineage(self) -> Lineage:
        """The lineage of the published history."""
        return Lineage(self.base, self.history)

    @property
    def reassigned(self) -> list[int]:
        """The partitions whose replicas are being moved, by index (KIP-455)."""
        return sorted({index for moves in (self.adding_replicas, self.removing_replicas) for index in moves})

    @property
    def at_work(self) -> bool:
        """Whether a resize, a reassignment, or a removal of partitions marked for deletion is unfinished."""
        marked = max(self.assignment, default=-1) >= self.undeleted_partition_count
        return marked or self.plan is not None or bool(self.adding_replicas or self.removing_replicas)

    def target(self, index: int) -> tuple[int, ...]:
        """Return a partition's target replicas: all but those being removed."""
        leaving = self.removing_replicas.get(index, ())
        return tuple(replica for replica in self.assignment.get(index, ()) if replica not in leaving)

    def origin(self, index: int) -> tuple[int, ...]:
        """Return a partition's original replicas: all but those being added."""
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
        """Whether keys are placed and resized by generations (KIP-253), or as in today's Kafka.

        `enable.ordered.delivery` decides until the first resize. From then on the keys' placement follows that choice,
        and stays so. The coordinators' internal topics are never ordered: the coordinators place their keys, not
        producers.
        """
        body = self.body
        if self.name in INTERNAL_TOPICS:
            return False
        if body.generation > 0 or body.plan is not None:
            return True
        return self.gated and body.undeleted_partition_count == body.initial_partition_count

    @property
    def gated(self) -> bool:
        """Whether consumers wait at a resize until earlier key epochs are read; may change at any time."""
        return self.config.get("enable.ordered.delivery", "true").lower() != "false"


@value
class Features:
    """The finalized features of the cluster (KIP-584), and the version of the znode that holds them; -1 without one."""

    levels: Mapping[str, int] = field(default_factory=dict)
    """Feature -> finalized level."""
    epoch: int = -1


class PartitionPhase(enum.Enum):
    """The phase of a partition (`partitions.LEGAL`)."""

    NON_EXISTENT = "non-existent"
    NEW = "new"
    ONLINE = "online"
    OFFLINE = "offline"


class ReplicaPhase(enum.Enum):
    """The phase of a replica (`replicas.LEGAL`)."""

    NON_EXISTENT = "non-existent"
    NEW = "new"
    ONLINE = "online"
    OFFLINE = "offline"
    DELETION_STARTED = "deletion started"
    DELETION_SUCCESSFUL = "deletion successful"
    DELETION_INELIGIBLE = "deletion ineligible"
