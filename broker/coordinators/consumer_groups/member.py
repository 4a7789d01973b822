"""One member of a KIP-848 group: its metadata and its reconciliation state.

A member is immutable and replaced as a whole. The journal keeps its metadata in one record and its current assignment
in another, because the two change independently.

Source: Kafka's ConsumerGroupMember, MemberState, ConsumerGroupMemberMetadataValue.json and
ConsumerGroupCurrentMemberAssignmentValue.json.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Final

from anabranch.broker.coordinators.consumer_groups import assignment
from anabranch.broker.coordinators.consumer_groups.assignment import NOTHING, Assignment
from anabranch.protocol.consumer_group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
)
from anabranch.protocol.values import value

JOIN_EPOCH: Final = 0
"""The member epoch of a heartbeat that joins or rejoins."""
LEAVE_EPOCH: Final = -1
STATIC_LEAVE: Final = -2
"""The epoch of a static member that left temporarily; its partitions stay reserved."""


class MemberState(enum.IntEnum):
    """The reconciliation state of a member; the value is the one in records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """The member has not reported yet that it has revoked its partitions."""
    UNRELEASED_PARTITIONS = 2
    """The member waits for partitions that others still have."""
    UNKNOWN = 127
    """A state written by newer software."""


STABLE, UNREVOKED, UNRELEASED, UNKNOWN = MemberState


@value(kw_only=True)
class ClassicMember:
    """The classic protocol's data of a member."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """(name, metadata), in order of preference."""

    @property
    def protocol(self) -> str:
        """The group's protocol in responses to the member: the one that it prefers."""
        return self.protocols[0][0]


@value(kw_only=True)
class Member:
    """One member of a KIP-848 group."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    """The topics that it subscribes to by name, sorted, without duplicates."""
    topic_regex: str = ""
    """Empty: no regular expression."""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMember | None = None
    """None: the member uses the consumer protocol."""
    holds_gates: bool = False
    """Whether the client holds gates itself (KIP-253)."""
    told_session_timeout_ms: int = -1
    """The longest session timeout sent to the member, which may still use it; -1 if it never requested one."""

    state: MemberState = STABLE
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    assigned: Assignment = dataclasses.field(default_factory=dict)
    revoking: Assignment = dataclasses.field(default_factory=dict)
    """The partitions to revoke, until the member reports that it has."""

    def is_reconciled(self, target_epoch: int) -> bool:
        """Return whether the member has reached the target of this epoch."""
        return self.state is STABLE and self.epoch == target_epoch

    def metadata(self) -> ConsumerGroupMemberMetadataValue:
        """Return the value of the member's metadata record."""
        classic = self.classic
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=list(self.topic_names),
            subscribed_topic_regex=self.topic_regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.assignor,
            classic_member_metadata=None
            if classic is None
            else ClassicMemberMetadata(
                session_timeout_ms=classic.session_timeout_ms,
                supported_protocols=[ClassicProtocol(name=name, metadata=data) for name, data in classic.protocols],
            ),
            holds_gates=self.holds_gates,
            told_session_timeout_ms=self.told_session_timeout_ms,
        )

    def with_metadata(self, content: ConsumerGroupMemberMetadataValue) -> Member:
        """Return the member with the metadata of a record."""
        classic = content.classic_member_metadata
        return dataclasses.replace(
            self,
            instance_id=content.instance_id,
            rack_id=content.rack_id,
            client_id=content.client_id,
            client_host=content.client_host,
            topic_names=ascending(content.subscribed_topic_names),
            topic_regex=content.subscribed_topic_regex or "",
            rebalance_timeout_ms=content.rebalance_timeout_ms,
            assignor=content.server_assignor,
            classic=None
            if classic is None
            else ClassicMember(
                session_timeout_ms=classic.session_timeout_ms,
                protocols=tuple((one.name, bytes(one.metadata)) for one in classic.supported_protocols),
            ),
            holds_gates=content.holds_gates,
            told_session_timeout_ms=content.told_session_timeout_ms,
        )

    def current(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        """Return the value of the member's current assignment record."""
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned_partitions=assignment.to_rows(self.assigned),
            partitions_pending_revocation=assignment.to_rows(self.revoking),
        )

    def with_current(self, content: ConsumerGroupCurrentMemberAssignmentValue | None) -> Member:
        """Return the member with the current assignment of a record; None: never reconciled, or has to rejoin."""
        if content is None:
            return dataclasses.replace(
                self, state=STABLE, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned=NOTHING, revoking=NOTHING
            )
        known = content.state in MemberState.__members__.values()
        return dataclasses.replace(
            self,
            state=MemberState(content.state) if known else UNKNOWN,
            epoch=content.member_epoch,
            previous_epoch=content.previous_member_epoch,
            assigned=assignment.of_rows(content.assigned_partitions),
            revoking=assignment.of_rows(content.partitions_pending_revocation),
        )


def ascending(names: list[str]) -> tuple[str, ...]:
    """Return topic names sorted, without duplicates."""
    return tuple(sorted(set(names)))
