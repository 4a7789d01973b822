"""The members of one classic consumer group: who they are, which protocols they share, who leads.

Kept here: members in the order in which they joined, the instance ids of static ones (KIP-345), and the ids that were
handed out but whose owners have not come back with them yet (KIP-394). A member is *parked* while its Join or Sync
waits for the others: it cannot send heartbeats then, so it has no session. The group's state and phases are in
`classic_group`.

Invariant: the leader is a member, or None while there are no members; every instance id names a member that carries it.
Source: kafka.coordinator.group.GroupMetadata and MemberMetadata.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from anabranch.broker.coordinators.classic_groups.group_events import Join, Replaced, Ticket
from anabranch.protocol.apis.join_group import JoinGroupRequest
from anabranch.protocol.errors import ErrorCode, KafkaError

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) in the order of the member's preference."""
NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
"""How long a first join may be parked before its member is given up (kafka NewMemberJoinTimeoutMs)."""


def protocols_of(request: JoinGroupRequest) -> Protocols:
    """The protocols a client offers, most wanted first. Copied out of the frame, because members outlive it."""
    return tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)


@dataclass(slots=True, kw_only=True)
class Member:
    """One member."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    holds_gates: bool = False
    """Whether it keeps the order of keys across resizes itself: then nothing is withheld from it."""
    is_new: bool = False
    """Has not got through its first join: kept alive by the new-member timeout instead of its session."""
    joining: Join | None = None
    syncing: Ticket | None = None
    session_deadline_ms: int | None = None
    """None while the member is parked: it cannot send heartbeats then."""

    def supports(self, protocol: str) -> bool:
        """Whether the member listed this protocol."""
        return any(name == protocol for name, _ in self.protocols)

    def metadata(self, protocol: str | None) -> bytes:
        """What the member said under this protocol; nothing when it does not know it."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: Iterable[str]) -> str:
        """The first of the member's protocols that all members support."""
        common = set(candidates)
        return next(name for name, _ in self.protocols if name in common)

    def touch(self, now_ms: int) -> None:
        """Begin the session anew, unless the member is parked."""
        if self.joining is None and self.syncing is None:
            self.session_deadline_ms = now_ms + self.session_timeout_ms

    def session_expired(self, now_ms: int) -> bool:
        """Whether the session, or the time for a first join, is over."""
        return self.session_deadline_ms is not None and self.session_deadline_ms <= now_ms

    def adopt(self, event: Join) -> None:
        """Take over what the client says of itself when it joins."""
        request = event.request
        self.client_id, self.client_host = event.client_id, event.client_host
        self.holds_gates = request.holds_gates
        self.session_timeout_ms = request.session_timeout_ms
        known = request.rebalance_timeout_ms >= 0
        self.rebalance_timeout_ms = request.rebalance_timeout_ms if known else request.session_timeout_ms  # v0
        self.protocols = protocols_of(request)

    def give_back(self, before: Replaced) -> None:
        """Make the member what it was before another life of its instance took its place."""
        self.session_timeout_ms = before.session_timeout_ms
        self.rebalance_timeout_ms = before.rebalance_timeout_ms
        self.protocols = before.protocols

    def hold_join(self, event: Join, now_ms: int) -> None:
        """The member's join waits for the end of the join phase."""
        self.joining = event
        self.session_deadline_ms = now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS if self.is_new else None

    def hold_sync(self, ticket: Ticket) -> None:
        """The member waits for its assignment."""
        self.syncing = ticket
        self.session_deadline_ms = None

    def drop_join(self) -> Join | None:
        """The join that waits, which is to be answered now; None if none does."""
        event, self.joining = self.joining, None
        return event

    def finish_join(self) -> Join | None:
        """The join phase is over: the member is new no longer. The join that waited, if one did, is to be answered."""
        self.is_new = False
        return self.drop_join()

    def drop_sync(self) -> Ticket | None:
        """The ticket of the sync that waits, which is to be answered now; None if none does."""
        ticket, self.syncing = self.syncing, None
        return ticket


@dataclass(slots=True)
class Members:
    """All members of a group."""

    by_id: dict[str, Member] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)
    """Instance id -> member id."""
    pending: dict[str, int] = field(default_factory=dict)
    """Member ids that were handed out (v4 on) -> when they lapse."""
    leader_id: str | None = None

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.by_id.values())

    def add(self, member: Member) -> None:
        """Let a member in; the first one leads."""
        self.by_id[member.member_id] = member
        self.pending.pop(member.member_id, None)
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member: Member) -> None:
        """Let a member go; the longest-standing one left takes over as leader."""
        del self.by_id[member.member_id]
        if member.instance_id is not None and self.static.get(member.instance_id) == member.member_id:
            del self.static[member.instance_id]
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.by_id), None)

    def replace_static(self, old: Member, member_id: str) -> None:
        """The instance restarted: its new member id takes the old one's place, leadership and order included."""
        assert old.instance_id is not None, f"{old.member_id} is not static"
        leads = self.leader_id == old.member_id
        self.by_id = {member_id if key == old.member_id else key: member for key, member in self.by_id.items()}
        old.member_id = member_id
        self.static[old.instance_id] = member_id
        if leads:
            self.leader_id = member_id

    def add_pending_member(self, member_id: str, until_ms: int) -> None:
        """An id was handed out: its owner has until then to come back with it."""
        self.pending[member_id] = until_ms

    def remove_pending_member(self, member_id: str) -> bool:
        """The owner of an id that was handed out will not come; whether there was such an id."""
        return self.pending.pop(member_id, None) is not None

    def expire_pending_members(self, now_ms: int) -> None:
        """Forget the ids whose owners have not come back with them in time."""
        self.pending = {member_id: due_ms for member_id, due_ms in self.pending.items() if due_ms > now_ms}

    def check(self, member_id: str, instance_id: str | None) -> Member:
        """The member behind an id, or the reason why the sender is not it: UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
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
        """The protocols that all members support, in the first member's order."""
        first = next(iter(self.by_id.values()), None)
        if first is None:
            return []
        return [name for name, _ in first.protocols if all(member.supports(name) for member in self)]

    def choose_protocol(self) -> str:
        """Every member votes for its first common protocol; most votes win, the earlier voter's on a tie."""
        common = self.common_protocols()
        assert common, "a member was let in that shares no protocol with the others"
        votes = Counter(member.vote(common) for member in self)
        return max(votes, key=votes.__getitem__)

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has joined, else let the first member lead that has; False when no member has."""
        leader = self.by_id.get(self.leader_id or "")
        if leader is None or leader.joining is None:
            joined = next((member for member in self if member.joining is not None), None)
            if joined is None:
                return False
            self.leader_id = joined.member_id
        return True

    @property
    def joining_count(self) -> int:
        """How many members wait for the join phase to end."""
        return sum(member.joining is not None for member in self)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of any member, in ms."""
        return max((member.rebalance_timeout_ms for member in self), default=0)
