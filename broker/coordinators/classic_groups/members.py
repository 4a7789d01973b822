"""The members of one classic group: their ids, shared protocols and leader.

`Members` keeps the members in join order, the instance ids of static members (KIP-345), and the pending ids: ids that
were sent to clients that have not joined with them yet (KIP-394). While a member's Join or Sync waits it has no
session, since it cannot send heartbeats. The group's state and phases are in `classic_group`.

Invariant: the leader is a member, or None while there are no members; every instance id maps to a member with that id.
Source: kafka.coordinator.group.GroupMetadata and MemberMetadata.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Final

from anabranch.broker.coordinators.classic_groups.group_events import Join, Replaced, Ticket
from anabranch.protocol.apis.join_group import JoinGroupRequest
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.values import slotted

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) in the order of the member's preference."""
NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
"""The time that a first join may wait before its member is removed (kafka NewMemberJoinTimeoutMs)."""


def protocols_of(request: JoinGroupRequest) -> Protocols:
    """Return the protocols that a client offers, in order of preference, as copies that outlive the frame."""
    return tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)


@slotted(kw_only=True)
class Member:
    """One member of a classic group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    holds_gates: bool = False
    """Whether the client holds gates itself; then nothing is withheld from it."""
    is_new: bool = False
    """Whether its first join is unfinished; then the new-member timeout applies instead of the session timeout."""
    joining: Join | None = None
    syncing: Ticket | None = None
    session_deadline_ms: int | None = None
    """None while a request of the member waits and it is not new: it cannot send heartbeats then."""

    def supports(self, protocol: str) -> bool:
        """Return whether the member offers this protocol."""
        return any(name == protocol for name, _ in self.protocols)

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for this protocol; empty if it does not offer it."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: Iterable[str]) -> str:
        """Return the first of the member's protocols that all members support."""
        common = set(candidates)
        return next(name for name, _ in self.protocols if name in common)

    def touch(self, now_ms: int) -> None:
        """Restart the session, unless a request of the member waits."""
        if self.joining is None and self.syncing is None:
            self.session_deadline_ms = now_ms + self.session_timeout_ms

    def session_expired(self, now_ms: int) -> bool:
        """Return whether the session, or the timeout of a first join, has expired."""
        return self.session_deadline_ms is not None and self.session_deadline_ms <= now_ms

    def adopt(self, event: Join) -> None:
        """Copy the client's data from its JoinGroup request."""
        request = event.request
        self.client_id, self.client_host = event.client_id, event.client_host
        self.holds_gates = request.holds_gates
        self.session_timeout_ms = request.session_timeout_ms
        known = request.rebalance_timeout_ms >= 0
        self.rebalance_timeout_ms = request.rebalance_timeout_ms if known else request.session_timeout_ms  # v0
        self.protocols = protocols_of(request)

    def give_back(self, before: Replaced) -> None:
        """Restore the member's data from before a static member replaced it."""
        self.session_timeout_ms = before.session_timeout_ms
        self.rebalance_timeout_ms = before.rebalance_timeout_ms
        self.protocols = before.protocols
        self.holds_gates = before.holds_gates

    def hold_join(self, event: Join, now_ms: int) -> None:
        """Let the member's join wait for the end of the join phase."""
        self.joining = event
        self.session_deadline_ms = now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS if self.is_new else None

    def hold_sync(self, ticket: Ticket) -> None:
        """Let the member's sync wait for the assignment."""
        self.syncing = ticket
        self.session_deadline_ms = None

    def drop_join(self) -> Join | None:
        """Remove and return the waiting join, if any; the caller answers it."""
        event, self.joining = self.joining, None
        return event

    def finish_join(self) -> Join | None:
        """End the member's first join; return the waiting join, if any, for the caller to answer."""
        self.is_new = False
        return self.drop_join()

    def drop_sync(self) -> Ticket | None:
        """Remove and return the ticket of the waiting sync, if any; the caller answers it."""
        ticket, self.syncing = self.syncing, None
        return ticket


@slotted
class Members:
    """All members of a group."""

    by_id: dict[str, Member] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)
    """Instance id -> member id."""
    pending: dict[str, int] = field(default_factory=dict)
    """Member ids that were sent to clients (v4 on) -> when they expire."""
    leader_id: str | None = None

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.by_id.values())

    def add(self, member: Member) -> None:
        """Add a member; the first one leads."""
        self.by_id[member.member_id] = member
        self.pending.pop(member.member_id, None)
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member: Member) -> None:
        """Remove a member; if it led, the member that joined first among the others leads."""
        del self.by_id[member.member_id]
        if member.instance_id is not None and self.static.get(member.instance_id) == member.member_id:
            del self.static[member.instance_id]
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.by_id), None)

    def replace_static(self, old: Member, member_id: str) -> None:
        """Give a static member a new member id; it keeps its place in the order and its leadership."""
        assert old.instance_id is not None, f"{old.member_id} is not static"
        leads = self.leader_id == old.member_id
        self.by_id = {member_id if key == old.member_id else key: member for key, member in self.by_id.items()}
        old.member_id = member_id
        self.static[old.instance_id] = member_id
        if leads:
            self.leader_id = member_id

    def add_pending_member(self, member_id: str, until_ms: int) -> None:
        """Register a member id that was sent to a client; it expires at `until_ms`."""
        self.pending[member_id] = until_ms

    def remove_pending_member(self, member_id: str) -> bool:
        """Remove a pending member id; return whether it existed."""
        return self.pending.pop(member_id, None) is not None

    def expire_pending_members(self, now_ms: int) -> None:
        """Remove the pending member ids that have expired."""
        self.pending = {member_id: due_ms for member_id, due_ms in self.pending.items() if due_ms > now_ms}

    def check(self, member_id: str, instance_id: str | None) -> Member:
        """Return the member with this id. Raises UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
        if instance_id is not None:
            current = self.static.get(instance_id)
            if current is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member has the instance id {instance_id}")
            if current != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, f"instance {instance_id} is now {current}")
        member = self.by_id.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} is not a member")
        return member

    def common_protocols(self) -> list[str]:
        """Return the protocols that all members support, in the first member's order."""
        first = next(iter(self.by_id.values()), None)
        if first is None:
            return []
        return [name for name, _ in first.protocols if all(member.supports(name) for member in self)]

    def choose_protocol(self) -> str:
        """Return the most voted protocol; a member votes for its first common one, and the first voter breaks ties."""
        common = self.common_protocols()
        assert common, "the members have no common protocol"
        votes = Counter(member.vote(common) for member in self)
        return max(votes, key=votes.__getitem__)

    def elect_joined_leader(self) -> bool:
        """Keep a leader that has joined, else choose the first member that has; return False if none has."""
        leader = self.by_id.get(self.leader_id or "")
        if leader is None or leader.joining is None:
            joined = next((member for member in self if member.joining is not None), None)
            if joined is None:
                return False
            self.leader_id = joined.member_id
        return True

    @property
    def joining_count(self) -> int:
        """The number of members whose join waits."""
        return sum(member.joining is not None for member in self)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of any member, in ms."""
        return max((member.rebalance_timeout_ms for member in self), default=0)
