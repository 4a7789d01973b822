"""Talks to the coordinator of a KIP-848 consumer group.

The counterpart of `classic_group_session`, with one request for everything. Joins and heartbeats take turns: each waits
for the response to the one before. The first join is preceded by a check that the cluster has such groups
(`has_consumer_groups`).

A coordinator sends a changed assignment once. After a heartbeat without its response, which may have had one, the
member therefore joins again, to be told its whole assignment (as Kafka's `HeartbeatState.reset`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from anabranch.clients.consumer.classic_group_membership import Assigned, HeartbeatOutcome, State
from anabranch.clients.consumer.classic_group_session import RETRY_BACKOFF_S, ClassicGroupSession
from anabranch.clients.consumer.consumer_group_membership import ConsumerGroupMembership
from anabranch.clients.network import Network
from anabranch.protocol.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from anabranch.protocol.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)

STALE_COMMITS_MAX: Final = 5
"""How often a commit is resent with the epoch of the next heartbeat."""
HEARTBEAT_TIMEOUT_S: Final = 1.0
LEAVE_TIMEOUT_S: Final = 2.0


async def has_consumer_groups(network: Network, group_id: str) -> bool:
    """Whether the group's coordinator supports KIP-848 groups."""
    request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
    try:
        response = await network.call_coordinator(group_id, request, lambda answer: answer.groups[0].error_code)
    except KafkaError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return False
        raise
    return ErrorCode(response.groups[0].error_code) is not ErrorCode.UNSUPPORTED_VERSION


class ConsumerGroupSession(ClassicGroupSession):
    """One member's connection to its coordinator."""

    membership: ConsumerGroupMembership

    def __init__(self, network: Network, membership: ConsumerGroupMembership, **more: Any) -> None:
        super().__init__(network, membership, **more)
        self._turn = asyncio.Lock()

    async def _join_once(self) -> Assigned | None:
        """Send a full heartbeat; return the assignment, None if the member was removed, or has to ask again."""
        membership = self.membership
        await self._bury()
        async with self._turn:
            sent_at_s = self._clock_s()
            self._unanswered = True
            response = await self._ask(membership.full_request(self._ids()))
            self._unanswered = False
            if response.error_code == ErrorCode.UNRELEASED_INSTANCE_ID and await self._release_instance():
                return None
            if membership.on_heartbeat_response(response) is not HeartbeatOutcome.PROCEED:
                return None
            membership.renew_lease(response, sent_at_s)
        partitions = await self._assignment_by_names(response)
        log.info("%s: %d partitions", membership.describe(), len(partitions))
        return Assigned(partitions, group_generation=membership.generation)

    async def _bury(self) -> None:
        """Leave with the fenced member id, because others would otherwise wait for its session timeout."""
        former_id, self.membership.former_id = self.membership.former_id, ""
        if former_id:
            with contextlib.suppress(KafkaError):
                await self._ask(self.membership.consumer_leave_request(member_id=former_id))

    async def _release_instance(self) -> bool:
        """Leave temporarily, if the coordinator has the instance id as this very member's; return whether it had.

        It has if the response to an earlier join was lost, or a leave request. It refuses another member's request.
        """
        response = await self._ask(self.membership.consumer_leave_request(away=True))
        return response.error_code == ErrorCode.NONE

    def _ids(self) -> dict[str, bytes]:
        topics = self._network.metadata.topics
        return {name: topics[name].topic_id for name in self.membership.topics if name in topics}

    async def _assignment_by_names(self, response: ConsumerGroupHeartbeatResponse) -> tuple[TopicPartition, ...]:
        """Return the assignment by topic names; topics missing from metadata follow with a later join."""
        rows = [] if response.assignment is None else response.assignment.topic_partitions
        names = {topic_id: name for name, topic_id in self._ids().items()}
        if any(row.topic_id not in names for row in rows):
            await self._network.refresh()
            names = {topic_id: name for name, topic_id in self._ids().items()}
            if any(row.topic_id not in names for row in rows):
                await asyncio.sleep(RETRY_BACKOFF_S)
                self.membership.expire()
        return tuple(
            TopicPartition(names[row.topic_id], index)
            for row in rows
            if row.topic_id in names
            for index in row.partitions
        )

    async def _beat_once(self) -> None:
        """Send a heartbeat, and note whether the assignment changes."""
        membership = self.membership
        async with self._turn:
            if membership.state is State.JOINING or membership.is_outside:
                return
            identity, sent_at_s, settled = self._identity(), self._clock_s(), membership.stable
            response = await self._ask(membership.consumer_heartbeat_request(), on_unknown_outcome=self._rejoin)
            code = ErrorCode(response.error_code)
            if code is ErrorCode.NONE and identity == self._identity():
                was_unsure = self.unsure
                membership.renew_lease(response, sent_at_s, rebalancing=not (settled and membership.stable))
                membership.at_epoch(response.member_epoch)
                if response.assignment is not None:
                    membership.expire()
                if response.assignment is not None or (was_unsure and not self.unsure):
                    self._wakeup.set()
        self._on_response_code(code, identity)

    def _rejoin(self) -> None:
        self.membership.expire()
        self._wakeup.set()

    def _on_response_code(self, code: ErrorCode, identity: tuple[str, int]) -> HeartbeatOutcome:
        if code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND) and identity == self._identity():
            self.membership.lease.end()
        return super()._on_response_code(code, identity)

    async def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        check_owned: Callable[[], None],
        topic_ids: Mapping[str, bytes],
    ) -> None:
        """Commit offsets (the next ones to read). Raises KafkaError if the group has moved on or refuses."""
        for _ in range(STALE_COMMITS_MAX):
            try:
                await super().commit(offsets, check_owned, topic_ids)
            except KafkaError as error:
                if error.code is not ErrorCode.STALE_MEMBER_EPOCH:
                    raise
            else:
                return
            self._beaten.clear()
            self.ask_now()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_TIMEOUT_S):
                    await self._beaten.wait()
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "the member's epoch changed during each attempt to commit")

    async def _send_leave(self) -> None:
        """Leave the group; a static member leaves temporarily (KIP-345)."""
        membership = self.membership
        request = (
            None
            if membership.is_outside and not self._unanswered
            else membership.consumer_leave_request(away=membership.instance_id is not None)
        )
        membership.expire(forget_identity=True)  # from here on, not from when the coordinator has received it
        self._wakeup.set()
        if request is None:
            return
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await self._ask(request)
        except (ConnectionError, TimeoutError, KafkaError) as error:
            log.info("%s could not leave the group: %s", request.member_id, error)

    async def _ask(
        self, request: ConsumerGroupHeartbeatRequest, *, on_unknown_outcome: Callable[[], None] = lambda: None
    ) -> ConsumerGroupHeartbeatResponse:
        response: ConsumerGroupHeartbeatResponse = await self._network.call_coordinator(
            self.membership.group_id,
            request,
            lambda answer: int(answer.error_code),
            timeout_ms=self.patience_ms,
            on_unknown_outcome=on_unknown_outcome,
        )
        if response.error_code == ErrorCode.NONE and response.heartbeat_interval_ms > 0:
            self._heartbeat_interval_s = response.heartbeat_interval_ms / 1000
        return response
