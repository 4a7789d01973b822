"""The state of one KIP-848 group member, with the interface of a cooperative classic member.

A *join* is a full heartbeat: it carries the subscription and the owned partitions. Its response is the target
assignment. If that has fewer partitions, the member revokes the rest and confirms it with the next join, which lets the
coordinator continue. If it has more, the member adopts them. Between joins, heartbeats are minimal; a response with an
assignment makes the member join again. So everything about cooperative members elsewhere (`ownership`, `joiner`)
applies to these members, too.

The member creates its own id, and keeps it until the coordinator fences it. Its generation is its member epoch. Source:
KIP-848, KIP-1082. Pure.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Mapping, Sequence
from typing import Final

from anabranch.clients.consumer.classic_group_membership import ClassicMembership, HeartbeatOutcome, State
from anabranch.clients.consumer.consumer_partition_assignor import PartitionAssignor
from anabranch.clients.consumer.lease import Lease
from anabranch.clients.group_metadata import ConsumerGroupMetadata
from anabranch.protocol.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from anabranch.protocol.errors import ErrorCode, KafkaError

JOINING: Final = 0
LEAVING: Final = -1
STATIC_LEAVE: Final = -2
UNTOLD_MS: Final = 2**31 - 1
"""The session timeout of a coordinator that does not tell it."""

_OUT: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})
"""Errors by which the coordinator no longer knows this member: it lost its partitions and starts again."""


class ConsumerGroupMembership(ClassicMembership):
    """One member."""

    def __init__(
        self,
        group_id: str,
        topics: Sequence[str],
        *,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        heartbeat_interval_ms: int,
        assignors: Sequence[PartitionAssignor],
        rng: random.Random,
        group_instance_id: str | None = None,
        client_rack: str = "",
    ) -> None:
        """Create a member; `assignors` and `session_timeout_ms` are unused: the broker has its own."""
        super().__init__(
            group_id,
            topics,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            heartbeat_interval_ms=heartbeat_interval_ms,
            assignors=assignors,
            group_instance_id=group_instance_id,
            client_rack=client_rack,
        )
        self.session_timeout_ms = UNTOLD_MS
        self.cooperative = True
        self.protocol = self.assignors[0].name
        self._rng = rng
        self.member_id = self._new_id()
        self.former_id = ""
        """The fenced member id, for which the coordinator still needs a leave request."""
        self._claimed: frozenset[tuple[bytes, int]] = frozenset()
        """The partitions that the last full request named as owned."""
        self.must_revoke = False
        """Whether the last full answer left out a partition that is owned: the rebalance timeout runs meanwhile."""
        self.lease = Lease(  # a newcomer of the classic protocol replaces a static member at once
            session_timeout_s=None,
            rebalance_timeout_s=rebalance_timeout_ms / 1000,
            heartbeat_interval_s=heartbeat_interval_ms / 1000,
            static=group_instance_id is not None,
        )

    def _new_id(self) -> str:
        return base64.urlsafe_b64encode(self._rng.randbytes(16)).decode().rstrip("=")

    # requests

    def full_request(self, ids: Mapping[str, bytes]) -> ConsumerGroupHeartbeatRequest:
        """Build a full heartbeat, to join or to repeat everything; `ids` are the topics' ids."""
        self.state = State.JOINING
        owned: dict[bytes, list[int]] = {}
        for one in () if self.is_outside else self._owned:
            if one.topic in ids:
                owned.setdefault(ids[one.topic], []).append(one.partition)
        self._claimed = frozenset((one, index) for one, indexes in owned.items() for index in indexes)
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=JOINING if self.is_outside else self.generation,
            instance_id=self.instance_id,
            rack_id=self._client_rack or None,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            subscribed_topic_names=list(self.topics),
            topic_partitions=[TopicPartitions(topic_id=one, partitions=owned[one]) for one in owned],
            holds_gates=self.holds_gates,
            asks_session_timeout=True,
        )

    def consumer_heartbeat_request(self) -> ConsumerGroupHeartbeatRequest:
        """Build a minimal heartbeat."""
        return self._short(self.member_id, self.generation)

    def consumer_leave_request(self, *, member_id: str = "", away: bool = False) -> ConsumerGroupHeartbeatRequest:
        """Build a leave request for this member or its fenced id; a static member may leave temporarily (`away`)."""
        return self._short(member_id or self.member_id, STATIC_LEAVE if away else LEAVING)

    def _short(self, member_id: str, epoch: int) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=self.instance_id,
            holds_gates=self.holds_gates,
            asks_session_timeout=True,
        )

    # responses

    def on_heartbeat_response(self, response: ConsumerGroupHeartbeatResponse) -> HeartbeatOutcome:
        """Handle the response to a full heartbeat. Raises KafkaError if the group refuses this member for good."""
        fate = self._fate(ErrorCode(response.error_code))
        if fate is HeartbeatOutcome.PROCEED:
            self.state = State.STABLE
            self.at_epoch(response.member_epoch)
            rows = [] if response.assignment is None else response.assignment.topic_partitions
            self.must_revoke = not self._claimed <= {(row.topic_id, index) for row in rows for index in row.partitions}
        return fate

    def renew_lease(
        self, response: ConsumerGroupHeartbeatResponse, sent_at_s: float, *, rebalancing: bool = False
    ) -> None:
        """Renew the lease for a response to a request sent at that time, with the timeouts in the response.

        While the member still has to revoke a partition, the rebalance timeout runs, and no response restarts it.
        """
        timeout_ms = response.session_timeout_ms
        if timeout_ms >= 0:
            self.session_timeout_ms = timeout_ms
        self.lease.agree(
            session_timeout_s=None if timeout_ms < 0 else timeout_ms / 1000,
            heartbeat_interval_s=response.heartbeat_interval_ms / 1000,
        )
        self.lease.renew(sent_at_s, rebalancing=rebalancing or self.must_revoke)

    def at_epoch(self, epoch: int) -> None:
        """Adopt the member epoch from the coordinator."""
        self.generation = epoch
        self.owner = ConsumerGroupMetadata(self.group_id, epoch, self.member_id, self.instance_id)

    def expire(self, *, forget_identity: bool = False) -> None:
        """Send everything again; as a new member if the coordinator does not know this one. The id stays the same."""
        self.state = State.UNJOINED
        if forget_identity:
            self.forget_generation()

    def _fate(self, code: ErrorCode) -> HeartbeatOutcome:
        if code is ErrorCode.GROUP_ID_NOT_FOUND and self.is_outside:
            raise KafkaError(
                code, f"group {self.group_id!r} is a classic group that cannot be converted to a KIP-848 group"
            )
        if code in _OUT:
            if code is ErrorCode.FENCED_MEMBER_EPOCH:
                self.former_id, self.member_id = self.member_id, self._new_id()
            self.expire(forget_identity=True)
            return HeartbeatOutcome.REJOIN
        if (
            code is ErrorCode.STALE_MEMBER_EPOCH
        ):  # the commit reached the coordinator before the new epoch reached this member
            return HeartbeatOutcome.WAIT
        if code is ErrorCode.ILLEGAL_GENERATION:
            raise KafkaError(code, f"group {self.group_id!r} has this member with the classic protocol")
        return super()._fate(code)
