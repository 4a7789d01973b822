"""Effects that the state machine returns; the runner executes them in the order in which they were decided.

Writes are conditional twice: on the version of the znode, and on the version of /controller_epoch, so that a replaced
controller cannot change anything. Their outcomes return as events before any other event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from anabranch.controller.model import Broker, LeaderAndIsr, TopicBody, TopicPartition
from anabranch.protocol.values import value

if TYPE_CHECKING:
    from anabranch.controller.events import Event
    from anabranch.controller.follow_ups import FollowUp
    from anabranch.protocol.errors import ErrorCode


@value
class PartitionWrite:
    """One state znode to write; `expected_epoch` None means that it must not exist yet."""

    partition: TopicPartition
    state: LeaderAndIsr
    expected_epoch: int | None


@value
class WritePartitions:
    """Write state znodes, each on its own condition. `label` names the step for failure injection."""

    writes: tuple[PartitionWrite, ...]
    label: str
    is_new: bool = False
    then: FollowUp | None = None
    quiet: bool = False


@value
class WriteTopic:
    """Write a topic's znode; the same transaction removes the partitions in `removed` and their states.

    It also writes `states`: all of it is committed, or nothing.
    """

    name: str
    body: TopicBody
    expected_version: int
    label: str
    removed: tuple[int, ...] = ()
    states: tuple[PartitionWrite, ...] = ()


@value
class RemoveTopic:
    """Remove a topic: its znodes, its configuration and the request to delete it."""

    name: str


@value
class RemoveDeletion:
    """Drop a request to delete a topic that does not exist or may not be deleted."""

    name: str


@value
class WriteFeatures:
    """Replace the finalized levels if their epoch is `expected_epoch` (-1: none are written yet).

    `results` is the response to the admin once this is written.
    """

    levels: Mapping[str, int]
    expected_epoch: int
    token: int | None = None
    results: Mapping[str, tuple[ErrorCode, str]] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)
    """Default configuration of all brokers, written in the same transaction if none is set."""


@value
class Connect:
    """Open the request queue to a broker, replacing that of its earlier incarnation."""

    broker: Broker


@value
class Disconnect:
    """Close the request queue to a broker and drop its requests."""

    broker_id: int


@value
class SendToBroker:
    """Append a request to the queue of this incarnation of a broker."""

    broker_id: int
    broker_epoch: int
    request: Any


@value
class SetTimer:
    """Fire `TimerFired(timer)` after a delay; setting the timer again replaces it."""

    timer: str
    delay_ms: int


@value
class SetReplyTimer:
    """Fire `ReplyDue(token)` after a delay."""

    token: int
    delay_ms: int


@value
class SendReply:
    """Answer the call of this token."""

    token: int
    response: Any


@value
class Post:
    """Deliver this event after the outcomes of the writes decided before it."""

    event: Event


@value
class PublishEvent:
    """Add a line to the timeline and the log: `kind` in words, and its subject."""

    kind: str
    detail: Mapping[str, Any] = field(default_factory=dict)


Effect = (
    WritePartitions
    | WriteTopic
    | RemoveTopic
    | RemoveDeletion
    | WriteFeatures
    | Connect
    | Disconnect
    | SendToBroker
    | SetTimer
    | SetReplyTimer
    | SendReply
    | Post
    | PublishEvent
)
