"""The member's side of consumer groups (KIP-848), in the terms of a cooperative member.

A *join* is a heartbeat that says everything: what is subscribed to, and what this member has. Its answer is what it is
to have now. Less than it has: the rest is given up, and the next join says so, which lets the coordinator go on. More:
it is taken up. Between joins heartbeats say nothing but that the member lives; one that is answered with an assignment
makes it join again. So all that is said of cooperative members elsewhere (`ownership`, `joiner`) holds of these.

The member makes its own id, and keeps it until the coordinator has fenced it. Its generation is its member epoch.
Source: KIP-848, KIP-1082. Pure.
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

_OUT: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})
"""The coordinator has no such member: what it had is lost, and it begins again."""


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
        """`assignors` and `session_timeout_ms` are not used here: the broker has its own."""
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
        self.cooperative = True
        self.protocol = self.assignors[0].name
        self._rng = rng
        self.member_id = self._new_id()
        self.former_id = ""
        """A fenced life of this member, of which the coordinator has to be told that it is over."""
        self.lease = Lease(  # a newcomer of the classic protocol takes the place of a static member at once
            session_timeout_s=None,
            rebalance_timeout_s=rebalance_timeout_ms / 1000,
            heartbeat_interval_s=heartbeat_interval_ms / 1000,
            static=group_instance_id is not None,
        )

    def _new_id(self) -> str:
        return base64.urlsafe_b64encode(self._rng.randbytes(16)).decode().rstrip("=")

    # what is said

    def full_request(self, ids: Mapping[str, bytes]) -> ConsumerGroupHeartbeatRequest:
        """Join, or say everything again; `ids` are those of the topics."""
        self.state = State.JOINING
        owned: dict[bytes, list[int]] = {}
        for one in () if self.is_outside else self._owned:
            if one.topic in ids:
                owned.setdefault(ids[one.topic], []).append(one.partition)
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
        """Say that this member is alive, and nothing new."""
        return self._short(self.member_id, self.generation)

    def consumer_leave_request(self, *, member_id: str = "", away: bool = False) -> ConsumerGroupHeartbeatRequest:
        """Say that this member, or an earlier life of it, goes; a static one may be `away` for a while only."""
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

    # what is heard

    def answered(self, response: ConsumerGroupHeartbeatResponse) -> HeartbeatOutcome:
        """Take the answer to a full request. KafkaError when the group will not have us at all."""
        fate = self._fate(ErrorCode(response.error_code))
        if fate is HeartbeatOutcome.PROCEED:
            self.state = State.STABLE
            self.at_epoch(response.member_epoch)
        return fate

    def renew_lease(
        self, response: ConsumerGroupHeartbeatResponse, asked_at_s: float, *, rebalancing: bool = False
    ) -> None:
        """Renew the lease by an answer to what was sent at that time, with the timeouts that the answer tells."""
        told_ms = response.session_timeout_ms
        self.lease.agree(
            session_timeout_s=None if told_ms < 0 else told_ms / 1000,
            heartbeat_interval_s=response.heartbeat_interval_ms / 1000,
        )
        self.lease.renew(asked_at_s, rebalancing=rebalancing)

    def at_epoch(self, epoch: int) -> None:
        """The coordinator says how far this member is."""
        self.generation = epoch
        self.owner = ConsumerGroupMetadata(self.group_id, epoch, self.member_id, self.instance_id)

    def expire(self, *, forget_identity: bool = False) -> None:
        """Say everything again; as a new member if the coordinator does not know us. The id stays the same."""
        self.state = State.UNJOINED
        if forget_identity:
            self.forget_generation()

    def _fate(self, code: ErrorCode) -> HeartbeatOutcome:
        if code is ErrorCode.GROUP_ID_NOT_FOUND and self.is_outside:
            raise KafkaError(
                code, f"group {self.group_id!r} is a classic one, and cannot become one that this can join"
            )
        if code in _OUT:
            if code is ErrorCode.FENCED_MEMBER_EPOCH:
                self.former_id, self.member_id = self.member_id, self._new_id()
            self.expire(forget_identity=True)
            return HeartbeatOutcome.REJOIN
        if code is ErrorCode.STALE_MEMBER_EPOCH:  # a commit met the coordinator before its answer met this member
            return HeartbeatOutcome.WAIT
        if code is ErrorCode.ILLEGAL_GENERATION:
            raise KafkaError(code, f"group {self.group_id!r} takes this for a member of the classic protocol")
        return super()._fate(code)
