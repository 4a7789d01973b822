"""The events of a classic group's state machine, and the effects that it returns.

A `Ticket` identifies one waiting request. The machine only returns it in an `Answer`; its type (a future in the
coordinator, a number in a test) is the caller's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field
from typing import Any

from anabranch.protocol.apis.heartbeat import HeartbeatRequest
from anabranch.protocol.apis.join_group import JoinGroupRequest
from anabranch.protocol.apis.leave_group import LeaveGroupRequest
from anabranch.protocol.apis.sync_group import SyncGroupRequest
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.internal_topics import GroupMetadataValue
from anabranch.protocol.values import value

Ticket = Any
Assignable = Mapping[str, Collection[int]]
"""Topic -> the partitions that stock members may be assigned; all partitions of topics that are not in it."""


@value(kw_only=True)
class Join:
    """A client sends JoinGroup. `version` selects the response's fields."""

    ticket: Ticket
    request: JoinGroupRequest
    version: int
    client_id: str
    client_host: str


@value(kw_only=True)
class Sync:
    """A member sends SyncGroup; the leader sends all members' assignments."""

    ticket: Ticket
    request: SyncGroupRequest
    assignable: Assignable = field(default_factory=dict)


@value(kw_only=True)
class Heartbeat:
    """A member sends Heartbeat."""

    ticket: Ticket
    request: HeartbeatRequest


@value(kw_only=True)
class Leave:
    """One member (v0-v2) or several members (v3 on) leave."""

    ticket: Ticket
    request: LeaveGroupRequest
    version: int


@value(kw_only=True)
class Commit:
    """A client commits offsets of the group, directly or in a transaction."""

    member_id: str
    instance_id: str | None
    generation: int
    """The generation or member epoch. -1: the sender is no member, and only stores its offsets in the group."""
    transactional: bool = False
    version: int = 9
    """The version of OffsetCommit; members of a KIP-848 group need 9."""
    partitions: Collection[tuple[str, int]] = ()
    """The partitions of the committed offsets."""


@value(kw_only=True)
class Observe:
    """A client waits for the group's committed offsets (ConsumerGroupPosition v1, KIP-253)."""

    member_id: str
    generation: int


@value
class Delete:
    """An administrator deletes the group with all its offsets."""


@value(kw_only=True)
class Persisted:
    """The journal has written the record of a `Persist`, or rejected it."""

    generation: int
    error: ErrorCode
    answer: Answer | None = None
    replaced: Replaced | None = None


@value
class GatedPartitions:
    """The partitions that no member of a Stable group has: withheld by the previous coordinator, or created since."""

    partitions: frozenset[tuple[str, int]]


@value
class GatesOpened:
    """The gates of some withheld partitions have opened."""


@value
class Tick:
    """A deadline may have passed."""


@value
class Close:
    """The group is deleted or coordinated by another broker; waiting requests get `error`."""

    error: ErrorCode


Event = (
    Join
    | Sync
    | Heartbeat
    | Leave
    | Commit
    | Observe
    | Delete
    | Persisted
    | GatedPartitions
    | GatesOpened
    | Tick
    | Close
)


@value
class Answer:
    """Send `response` to the request behind `ticket`."""

    ticket: Ticket
    response: Any


@value(kw_only=True)
class Replaced:
    """The previous data of a replaced static member, restored if its replacement cannot be stored."""

    instance_id: str
    old_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    holds_gates: bool


@value
class Persist:
    """Write the group to the journal, then apply `Persisted` with `answer`, which is sent afterwards."""

    generation: int
    value: GroupMetadataValue
    answer: Answer | None = None
    replaced: Replaced | None = None


@value
class RebalanceRequired:
    """The assignment is no longer in force; clients that wait for committed offsets get `error`."""

    error: ErrorCode


@value
class Verdict:
    """Whether a `Commit`, `Observe` or `Delete` is allowed: NONE or an error. These events have no other effect."""

    error: ErrorCode
    reason: str


Effect = Answer | Persist | RebalanceRequired | Verdict
