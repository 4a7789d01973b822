"""Events of the active controller. The runner makes them from watches, responses, timers and calls.

An event carries the data that was read, so `machine.step` decides without I/O. The outcome of a conditional write is an
event too, so a lost write is an ordinary case and not an exception inside a decision.
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
    """A topic and the states of those partitions that have one."""

    topic: Topic
    partitions: Mapping[int, Partition]
    fresh_id: bytes = ZERO_UUID
    """A random id for the topic in case it has none, drawn outside the state machine."""


@value
class ControllerFailover:
    """This node won the election and has read the whole state."""

    brokers: Mapping[int, Broker]
    topics: tuple[TopicSnapshot, ...]
    deletions: frozenset[str]
    features: Features | None = field(default_factory=Features)
    """The finalized levels; None if there is no such znode yet."""


@value
class SendInitialState:
    """Posted behind a new controller's first elections: send all brokers the full state, continue deletions."""

    deletions: frozenset[str]


@value
class BrokersRead:
    """The current children of /brokers/ids."""

    brokers: Mapping[int, Broker]


@value
class BrokersJoined:
    """These brokers registered, for the first time or again; posted once their earlier incarnations were handled."""

    brokers: tuple[Broker, ...]


@value
class TopicsRead:
    """The current children of /brokers/topics, and the contents of new ones."""

    names: frozenset[str]
    found: tuple[TopicSnapshot, ...]


@value
class TopicRead:
    """A known topic's znode or configuration changed: its new contents."""

    topic: Topic


@value
class TopicWriteLost:
    """A `WriteTopic` lost to another writer: the znode holds `topic` now, None if it was deleted.

    `states` are the current states of the partitions that the write included.
    """

    name: str
    topic: Topic | None
    label: str
    states: Mapping[TopicPartition, Partition | None] = field(default_factory=dict)


@value
class TopicWriteRefused:
    """A `WriteTopic` with this label exceeds ZooKeeper's size limit."""

    name: str
    label: str
    size_bytes: int


@value
class Reconcile:
    """Elect, create, advance and delete where possible after a change."""


@value
class DeletionsRead:
    """The current children of /admin/delete_topics."""

    names: frozenset[str]


@value
class PartitionsWritten:
    """The outcome of a `WritePartitions`: committed states, and the current states of those that were lost."""

    written: Mapping[TopicPartition, Partition]
    lost: Mapping[TopicPartition, Partition | None]
    is_new: bool
    then: FollowUp | None
    quiet: bool = False


@value
class TopicWritten:
    """A `WriteTopic` succeeded; `removed` partitions and their states are deleted."""

    name: str
    body: TopicBody
    version: int
    label: str
    removed: tuple[int, ...] = ()
    states: Mapping[TopicPartition, Partition] = field(default_factory=dict)


@value
class TopicRemoved:
    """All znodes of this topic are deleted."""

    name: str


@value
class ResponseReceived:
    """A broker answered a request sent to this incarnation of it."""

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
    """An admin requests to finalize or withdraw feature levels."""

    token: int
    request: UpdateFeaturesRequest
    together: bool = False
    """Whether all updates succeed or none."""


@value
class FeaturesWritten:
    """The outcome of a `WriteFeatures`: the current finalized levels; other ones mean a lost write."""

    features: Features
    requested: Mapping[str, int]
    token: int | None
    results: Mapping[str, tuple[ErrorCode, str]]


@value
class SettingsChanged:
    """This node's dynamic settings changed."""

    settings: ControllerSettings


@value
class AlterPartitionRequested:
    """A leader proposes ISR changes."""

    token: int
    request: AlterPartitionRequest


@value
class ShutdownRequested:
    """A broker shuts down and asks for its leaderships to be moved."""

    token: int
    request: ControlledShutdownRequest


@value
class PartitionsRequested:
    """An admin client requests more or fewer partitions."""

    token: int
    request: CreatePartitionsRequest
    barred: Mapping[str, KafkaError] = field(default_factory=dict)
    """Topics that may not shrink because of their readers, each with the error to return."""


@value
class ElectionRequested:
    """An admin requests preferred or unclean leader elections."""

    token: int
    request: ElectLeadersRequest


@value
class ReassignmentRequested:
    """An admin starts or cancels reassignments."""

    token: int
    request: AlterPartitionReassignmentsRequest


@value
class ReassignmentStarted:
    """The znodes of a `ReassignmentRequested` are written or lost; posted behind their outcomes."""

    token: int
    targets: Mapping[TopicPartition, tuple[int, ...]]
    refused: Mapping[TopicPartition, tuple[int, str]]
    requested: tuple[tuple[str, tuple[int, ...]], ...]
    """(topic, partitions) in the order of the request."""


@value
class ReassignmentsListed:
    """An admin lists reassignments."""

    token: int
    request: ListPartitionReassignmentsRequest


@value
class ReplyDue:
    """A `PartitionsRequested` timed out."""

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
