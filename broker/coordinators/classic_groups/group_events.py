"""What can happen to a consumer group, and what a group can ask its surroundings to do.

A `Ticket` stands for one request that waits for its answer. The machine only hands it back inside an `Answer`; what it
is (a future in the coordinator, a number in a test) is known to the caller that applied the event.
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
"""Topic -> the partitions that members without gates may be assigned; of topics that are not in it, all of them."""


@value(kw_only=True)
class Join:
    """A client wants to be a member. `version` decides what it understands."""

    ticket: Ticket
    request: JoinGroupRequest
    version: int
    client_id: str
    client_host: str


@value(kw_only=True)
class Sync:
    """A member wants its assignment; the leader brings those of all members."""

    ticket: Ticket
    request: SyncGroupRequest
    assignable: Assignable = field(default_factory=dict)


@value(kw_only=True)
class Heartbeat:
    """A member is alive."""

    ticket: Ticket
    request: HeartbeatRequest


@value(kw_only=True)
class Leave:
    """Members go, one (v0-v2) or several (v3 on)."""

    ticket: Ticket
    request: LeaveGroupRequest
    version: int


@value(kw_only=True)
class Commit:
    """A client wants to commit offsets in the name of the group, at once or as part of a transaction."""

    member_id: str
    instance_id: str | None
    generation: int
    """Or its member epoch. -1: the sender is no member, and uses the group only to keep its offsets."""
    transactional: bool = False
    version: int = 9
    """Of the OffsetCommit: members whose broker assigns need 9."""
    partitions: Collection[tuple[str, int]] = ()
    """Of which offsets."""


@value(kw_only=True)
class Observe:
    """A client wants to wait for the group's progress (ConsumerGroupPosition v1, KIP-253)."""

    member_id: str
    generation: int


@value
class Delete:
    """An administrator wants the group, and all its offsets, deleted."""


@value(kw_only=True)
class Persisted:
    """The journal took, or refused, what a `Persist` asked it to write."""

    generation: int
    error: ErrorCode
    answer: Answer | None = None
    replaced: Replaced | None = None


@value
class GatedPartitions:
    """A coordinator that took over has found what its predecessor withheld from the members of a Stable group."""

    partitions: frozenset[tuple[str, int]]


@value
class GatesOpened:
    """Something that is withheld may be assigned now."""


@value
class Tick:
    """A deadline may have passed."""


@value
class Close:
    """This node coordinates the group no longer, or the group is deleted: what waits is answered with `error`."""

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
    """A static member took the place of its earlier life, which was this; it gets it back if that cannot be stored."""

    instance_id: str
    old_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@value
class Persist:
    """Write the group to the journal, then come back with `Persisted` (and its `answer`, which waits for that)."""

    generation: int
    value: GroupMetadataValue
    answer: Answer | None = None
    replaced: Replaced | None = None


@value
class RebalanceRequired:
    """The assignment is no longer in force: clients that wait for the group's progress are answered with `error`."""

    error: ErrorCode


@value
class Verdict:
    """Whether a `Commit`, `Observe` or `Delete` is allowed: NONE, or why not. It is the only effect of these events."""

    error: ErrorCode
    reason: str


Effect = Answer | Persist | RebalanceRequired | Verdict
