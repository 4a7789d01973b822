"""One member of a KIP-848 group: what it said of itself, and how far it has been reconciled.

A member is a value: it is replaced, never changed. The first half of it is kept in one record of the journal (its
metadata), the second half in another (its current assignment), because the two change for different reasons.

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
"""The member epoch of one that (re)joins."""
LEAVE_EPOCH: Final = -1
STATIC_LEAVE: Final = -2
"""The member epoch of a static member that left and is expected back: its partitions stay reserved."""


class MemberState(enum.IntEnum):
    """The value is the one in records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """Has to give partitions up, and has not said yet that it did."""
    UNRELEASED_PARTITIONS = 2
    """Waits for partitions that others still have."""
    UNKNOWN = 127
    """A state of newer software."""


STABLE, UNREVOKED, UNRELEASED, UNKNOWN = MemberState


@value(kw_only=True)
class ClassicMember:
    """What a member that speaks the classic protocol said when it joined."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """(name, metadata), most wanted first."""

    @property
    def protocol(self) -> str:
        """The protocol that it is told the group has: the one it wants most."""
        return self.protocols[0][0]


@value(kw_only=True)
class Member:
    """One member."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    """What it subscribes to by name, ascending and each once."""
    topic_regex: str = ""
    """Empty: no regular expression."""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMember | None = None
    """None: the member speaks the consumer protocol."""
    holds_gates: bool = False
    """Whether it waits by itself for what comes before a segment (KIP-253)."""
    told_session_timeout_ms: int = -1
    """The longest session timeout that it was told; -1 for a member that never asked. It may go by this one even if
    it was told a shorter one since, in an answer that was lost."""

    state: MemberState = STABLE
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    assigned: Assignment = dataclasses.field(default_factory=dict)
    revoking: Assignment = dataclasses.field(default_factory=dict)
    """What it has to give up, and has not said yet that it did."""

    def is_reconciled(self, target_epoch: int) -> bool:
        """Whether there is nothing left to do for the target of this epoch."""
        return self.state is STABLE and self.epoch == target_epoch

    def metadata(self) -> ConsumerGroupMemberMetadataValue:
        """The record of what the member said of itself."""
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

    def with_metadata(self, said: ConsumerGroupMemberMetadataValue) -> Member:
        """The member as that record tells of it."""
        classic = said.classic_member_metadata
        return dataclasses.replace(
            self,
            instance_id=said.instance_id,
            rack_id=said.rack_id,
            client_id=said.client_id,
            client_host=said.client_host,
            topic_names=ascending(said.subscribed_topic_names),
            topic_regex=said.subscribed_topic_regex or "",
            rebalance_timeout_ms=said.rebalance_timeout_ms,
            assignor=said.server_assignor,
            classic=None
            if classic is None
            else ClassicMember(
                session_timeout_ms=classic.session_timeout_ms,
                protocols=tuple((one.name, bytes(one.metadata)) for one in classic.supported_protocols),
            ),
            holds_gates=said.holds_gates,
            told_session_timeout_ms=said.told_session_timeout_ms,
        )

    def current(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        """The record of how far the member has been reconciled."""
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned_partitions=assignment.to_rows(self.assigned),
            partitions_pending_revocation=assignment.to_rows(self.revoking),
        )

    def with_current(self, said: ConsumerGroupCurrentMemberAssignmentValue | None) -> Member:
        """The member as that record tells of it; None: it was never reconciled, or has to begin again."""
        if said is None:
            return dataclasses.replace(
                self, state=STABLE, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned=NOTHING, revoking=NOTHING
            )
        known = said.state in MemberState.__members__.values()
        return dataclasses.replace(
            self,
            state=MemberState(said.state) if known else UNKNOWN,
            epoch=said.member_epoch,
            previous_epoch=said.previous_member_epoch,
            assigned=assignment.of_rows(said.assigned_partitions),
            revoking=assignment.of_rows(said.partitions_pending_revocation),
        )


def ascending(names: list[str]) -> tuple[str, ...]:
    """The names of topics in order, each once."""
    return tuple(sorted(set(names)))
