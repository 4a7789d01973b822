"""The clients of a group's scenarios, and their requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anabranch.broker.coordinators.classic_groups.group_events import Commit
from anabranch.protocol.apis.heartbeat import HeartbeatRequest
from anabranch.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from anabranch.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

GROUP: Final = "g"


@dataclass
class Client:
    """A consumer: its settings, and the member id and generation of its last response."""

    name: str
    instance_id: str | None = None
    protocols: tuple[str, ...] = ("range",)
    session_ms: int = 10_000
    rebalance_ms: int = 60_000
    member_id: str = ""
    generation: int = -1

    def join(self) -> JoinGroupRequest:
        """Return the next JoinGroup."""
        return JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=name, metadata=self.name.encode()) for name in self.protocols],
        )

    def sync(self, given: dict[str, str]) -> SyncGroupRequest:
        """Return the next SyncGroup; `given`: member id -> assignment, from the leader."""
        return SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=text.encode())
                for member_id, text in given.items()
            ],
        )

    def heartbeat(self) -> HeartbeatRequest:
        """Return the next Heartbeat."""
        return HeartbeatRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )

    def commit(self, *, transactional: bool) -> Commit:
        """Return the sender of the next OffsetCommit or TxnOffsetCommit."""
        return Commit(
            member_id=self.member_id,
            instance_id=self.instance_id,
            generation=self.generation,
            transactional=transactional,
        )


@dataclass
class Ticket:
    """A request that waits for its response."""

    client: Client
    answered: bool = False
