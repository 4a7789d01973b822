"""Everything that can happen to the active controller. The runner turns watches, answers, timers and calls into
these.

An event carries what was read, never where to read it: `machine.step` decides without I/O. The outcome of a
conditional write is an event too, so that losing one is an ordinary case and not an exception inside a decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from anabranch.controller.model import Broker, Features, Partition, Topic, TopicBody, TopicPartition
from anabranch.protocol.values import value
from anabranch.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from anabranch.controller.follow_ups import FollowUp
    from anabranch.controller.settings import ControllerSettings
    from anabranch.protocol.apis.alter_partition import AlterPartitionRequest
    from anabranch.protocol.apis.alter_partition_reassignments import AlterPartitionReassignmentsRequest
    from anabranch.protocol.apis.controlled_shutdown import ControlledShutdownRequest
    from anabranch.protocol.apis.create_partitions import CreatePartitionsRequest
    from anabranch.protocol.apis.elect_leaders import ElectLeadersRequest
    from anabranch.protocol.apis.list_partition_reassignments import ListPartitionReassignmentsRequest
    from anabranch.protocol.apis.update_features import UpdateFeaturesRequest
    from anabranch.protocol.errors import ErrorCode, KafkaError


@value
class TopicSnapshot:
    """A topic with the states of those of its partitions that have one."""

    topic: Topic
    partitions: Mapping[int, Partition]
    fresh_id: bytes = ZERO_UUID
    """An id drawn for the topic in case it has none: chance enters as data."""


@value
class ControllerFailover:
    """This node won the election and has read everything there is."""

    brokers: Mapping[int, Broker]
    topics: tuple[TopicSnapshot, ...]
    deletions: frozenset[str]
    features: Features | None = field(default_factory=Features)
    """The finalized levels; None if there is no such znode yet."""


@value
class SendInitialState:
    """Posted by a new controller behind its first elections: tell all brokers everything, then go on deleting."""

    deletions: frozenset[str]


@value
class BrokersRead:
    """/brokers/ids as it is now."""

    brokers: Mapping[int, Broker]


@value
class BrokersJoined:
    """These brokers registered, for the first time or again; posted once their earlier lives were dealt with."""

    brokers: tuple[Broker, ...]


@value
class TopicsRead:
    """The children of /brokers/topics as they are now, and the contents of those not known before."""

    names: frozenset[str]
    found: tuple[TopicSnapshot, ...]


@value
class TopicRead:
    """One known topic's znode or configuration changed: this is what they hold."""

    topic: Topic


@value
class TopicWriteLost:
    """A `WriteTopic` was lost: another writer had changed the znode, which holds `topic` now, None if it is gone.

    `states` are those that it would have written, as they are.
    """

    name: str
    topic: Topic | None
    label: str
    states: Mapping[TopicPartition, Partition | None] = field(default_factory=dict)


@value
class TopicWriteRefused:
    """A `WriteTopic` of this label cannot be written: it is larger than ZooKeeper takes."""

    name: str
    label: str
    size_bytes: int


@value
class Reconcile:
    """Elect, create, advance and delete whatever can be, now that something has changed."""


@value
class DeletionsRead:
    """The children of /admin/delete_topics as they are now."""

    names: frozenset[str]


@value
class PartitionsWritten:
    """The outcome of a `WritePartitions`: states that are committed, and for those that were lost what is there."""

    written: Mapping[TopicPartition, Partition]
    lost: Mapping[TopicPartition, Partition | None]
    is_new: bool
    then: FollowUp | None
    quiet: bool = False


@value
class TopicWritten:
    """A `WriteTopic` succeeded; `removed` partitions are gone together with their state."""

    name: str
    body: TopicBody
    version: int
    label: str
    removed: tuple[int, ...] = ()
    states: Mapping[TopicPartition, Partition] = field(default_factory=dict)


@value
class TopicRemoved:
    """Nothing of this topic is left in ZooKeeper."""

    name: str


@value
class ResponseReceived:
    """A broker answered a request that was sent to this incarnation of it."""

    broker_id: int
    broker_epoch: int
    request: Any
    response: Any


PREFERRED_TIMER: Final = "preferred"
REBALANCE_TIMER: Final = "rebalance"
DRAINED_TIMER: Final = "drained"
REMIND_TIMER: Final = "remind"
RETRY_TIMER: Final = "retry"
NEXT_TIMER: Final = "next"


@value
class TimerFired:
    """A timer set by `SetTimer` is due."""

    timer: str


@value
class FeaturesRequested:
    """An admin wants levels of features finalized, or withdrawn."""

    token: int
    request: UpdateFeaturesRequest
    together: bool = False
    """Whether all of it is done or nothing."""


@value
class FeaturesWritten:
    """The outcome of a `WriteFeatures`: the levels that are finalized now; the write was lost if these are others."""

    features: Features
    wanted: Mapping[str, int]
    token: int | None
    results: Mapping[str, tuple[ErrorCode, str]]


@value
class SettingsChanged:
    """This node's settings are others now, as they may become while it runs."""

    settings: ControllerSettings


@value
class AlterPartitionRequested:
    """A leader proposes ISR changes."""

    token: int
    request: AlterPartitionRequest


@value
class ShutdownRequested:
    """A broker wants to stop and asks for its leaderships to be moved."""

    token: int
    request: ControlledShutdownRequest


@value
class PartitionsRequested:
    """An admin asks for more, or fewer, partitions."""

    token: int
    request: CreatePartitionsRequest
    barred: Mapping[str, KafkaError] = field(default_factory=dict)
    """Topics that may not shrink, for the sake of those who read them, each with the refusal."""


@value
class ElectionRequested:
    """An admin wants preferred leaders back, or leaders at any price."""

    token: int
    request: ElectLeadersRequest


@value
class ReassignmentRequested:
    """An admin wants replicas elsewhere, or back where they were."""

    token: int
    request: AlterPartitionReassignmentsRequest


@value
class ReassignmentStarted:
    """The znodes of a `ReassignmentRequested` are written, or lost: posted behind their outcomes."""

    token: int
    targets: Mapping[TopicPartition, tuple[int, ...]]
    refused: Mapping[TopicPartition, tuple[int, str]]
    asked: tuple[tuple[str, tuple[int, ...]], ...]
    """(topic, partitions) in the order of the request."""


@value
class ReassignmentsListed:
    """An admin asks which replicas are being moved."""

    token: int
    request: ListPartitionReassignmentsRequest


@value
class ReplyDue:
    """The time that a `PartitionsRequested` may wait is up."""

    token: int


Event = (
    ControllerFailover
    | SendInitialState
    | BrokersRead
    | BrokersJoined
    | TopicsRead
    | TopicRead
    | TopicWriteLost
    | TopicWriteRefused
    | Reconcile
    | DeletionsRead
    | PartitionsWritten
    | TopicWritten
    | TopicRemoved
    | ResponseReceived
    | TimerFired
    | SettingsChanged
    | FeaturesRequested
    | FeaturesWritten
    | AlterPartitionRequested
    | ShutdownRequested
    | PartitionsRequested
    | ElectionRequested
    | ReassignmentRequested
    | ReassignmentStarted
    | ReassignmentsListed
    | ReplyDue
)
