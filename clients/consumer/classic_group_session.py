"""Talks to the coordinator of a classic group: joins, heartbeats, commits, and waits for committed offsets.

A shell around `ClassicMembership`: it sends the requests that the membership builds, follows the coordinator when it
moves, and sends heartbeats. Only `committed_offsets` asks the coordinator besides. Its connections do not block each
other: one for short requests; one for the long poll of `await_positions`, which would otherwise delay the commit that
it waits for; and one for the joins of members that keep reading.

A member may have been replaced without a notice from the coordinator. One that was stopped, blocked or cut off for the
length of its session assumes so (`ClassicMembership.unsure`), and asks here (`confirm_membership`).
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from anabranch.clients import group_offsets
from anabranch.clients.clock import elapsed_clock
from anabranch.clients.consumer.classic_group_membership import (
    Assigned,
    ClassicMembership,
    HeartbeatOutcome,
    State,
    TopicShape,
)
from anabranch.clients.consumer.committed_offsets import CommittedOffsets
from anabranch.clients.metadata import ClusterMetadata, Topic
from anabranch.clients.network import GROUP, JOIN, POSITIONS, Network
from anabranch.protocol.apis.consumer_group_position import ConsumerGroupPositionResponse
from anabranch.protocol.apis.offset_commit import OffsetCommitResponse
from anabranch.protocol.apis.sync_group import SyncGroupRequest
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)

CONVERSATION: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
"""Commit errors that concern the member, not the offset."""
RETRY_BACKOFF_S: Final = 0.1
ANSWER_MARGIN_MS: Final = 5000
"""How much longer than the server's own time limit to wait for a long poll's response."""


class ClassicGroupSession:
    """One member's connection to its coordinator: joins, heartbeats, commits."""

    def __init__(
        self,
        network: Network,
        membership: ClassicMembership,
        *,
        heartbeat_interval_ms: int,
        rebalance_timeout_ms: int,
        wakeup: asyncio.Event,
    ) -> None:
        self._network = network
        self.membership = membership
        self.committed = CommittedOffsets(network, membership.group_id)
        self._heartbeat_interval_s = heartbeat_interval_ms / 1000
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._wakeup = wakeup
        self._heartbeats: asyncio.Task[None] | None = None
        self._beat_now = asyncio.Event()
        self._beaten = asyncio.Event()
        self._clock_s = elapsed_clock()
        self._worked_at_s = self._clock_s()
        self._is_polling = False
        self._is_assigning = False
        self._left = False
        self._unanswered = False
        """Whether a request of the last join may still wait at the coordinator."""
        self.commits = 0
        """Number of commits that the group has accepted."""
        self.failure: BaseException | None = None
        """The error with which the group refuses this member for good: fenced instance id, or no authorization."""

    @property
    def unsure(self) -> bool:
        """Whether the member may have been replaced, and must ask the coordinator before it acts for the group."""
        return self.membership.unsure(self._clock_s())

    @property
    def patience_ms(self) -> int:
        """How long to wait for the response to a heartbeat: after a session another broker may have the group."""
        return min(self.membership.session_timeout_ms, self._network.config.request_timeout_ms)

    def ask_now(self) -> None:
        """Send a heartbeat at once, to learn whether this member is still valid."""
        self._beat_now.set()

    async def confirm_membership(self, *, timeout_s: float) -> None:
        """Confirm an uncertain membership with the coordinator. Raises KafkaError if it is lost or unconfirmed."""
        if self.unsure:
            await self._await_heartbeat(timeout_s)
        self.check_not_lost()
        if self.failure is not None:
            raise self.failure
        if self.unsure:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"no coordinator confirms the membership in {self.membership.group_id!r}",
            )

    async def _await_heartbeat(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                self.ask_now()
                while self.unsure and self.failure is None:
                    self._beaten.clear()
                    await self._beaten.wait()

    def at_work(self, now_s: float, *, polling: bool) -> None:
        """Note that the application asks for records, or has received them: it is alive, not only this process."""
        self._is_polling = polling
        self._worked_at_s = now_s

    async def join(self) -> Assigned | None:
        """Join or rejoin until there is an assignment. Raises KafkaError if the group refuses this member for good.

        Returns None if the member loses partitions that it kept: they have to be given up first.
        """
        if self._heartbeats is None:
            self._heartbeats = asyncio.create_task(self._beat(), name=f"heartbeat of {self.membership.group_id}")
            self._heartbeats.add_done_callback(self._on_heartbeats_stopped)
        while not self.membership.keeps_lost:
            try:
                assigned = await self._join_once()
            except (ConnectionError, TimeoutError, KafkaError) as error:
                if self._left or (isinstance(error, KafkaError) and not error.code.retriable):
                    self.membership.lease.end()
                    raise
                log.warning("%s cannot join yet: %s", self.membership.describe(), error)
                await asyncio.sleep(RETRY_BACKOFF_S)
            else:
                if assigned is not None:
                    return assigned
            finally:
                if not self.membership.stable:
                    self.membership.expire()
        return None

    async def _join_once(self) -> Assigned | None:
        """Run one round: join, assign as leader, sync. Returns None if the group rebalanced meanwhile."""
        membership = self.membership
        response, sent_at_s = await self._call_parked(membership.join_request())
        if membership.on_join_response(response) is not HeartbeatOutcome.PROCEED:
            return None
        self.membership.lease.renew(sent_at_s)
        self._is_assigning = True
        try:
            topics, request = await self._assign()
        finally:
            self._is_assigning = False
        response, sent_at_s = await self._call_parked(request)
        fate, assigned = membership.on_sync_response(response)
        if fate is not HeartbeatOutcome.PROCEED:
            return None
        self.membership.lease.renew(sent_at_s)
        log.info("%s: %d partitions", membership.describe(), len(assigned.partitions))
        if not membership.assigns:
            return assigned  # made from older metadata, perhaps
        shapes = {
            name: TopicShape(topic.generation, frozenset(topic.partitions), topic.topic_id)
            for name, topic in topics.items()
        }
        return replace(assigned, shapes=shapes)

    async def _assign(self) -> tuple[dict[str, Topic], SyncGroupRequest]:
        """Return the topics of the group, as its leader, and the request with the assignment, if this member assigns.

        An assignor has the rebalance timeout. Heartbeats go on, because the session may be shorter.
        """
        membership = self.membership
        topics = await self._topics_of_the_group() if membership.is_leader else {}
        if not membership.assigns:
            return topics, membership.sync_request()
        assignment = membership.assignor.assign(self._network.metadata, membership.members)
        if inspect.isawaitable(assignment):
            assignment = await assignment
        generations = {name: topic.generation for name, topic in topics.items() if topic.ordered}
        return topics, membership.sync_request(assignment, generations)

    async def leave(self) -> None:
        """Stop the heartbeats and leave the group; an unreachable coordinator notices by the session timeout.

        A static member sends no LeaveGroup: its partitions wait for its return (KIP-345).
        """
        self._left = True
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            await asyncio.gather(self._heartbeats, return_exceptions=True)
            self._heartbeats = None
        await self._send_leave()

    async def _send_leave(self) -> None:
        """Leave the group; also one that has not answered the member's first join, in which it waits for others."""
        request = self.membership.leave_request() if self.membership.member_id else None
        channel = JOIN if self._unanswered and not self.membership.cooperative else GROUP  # not behind what waits
        self.membership.expire(forget_identity=True)  # from here on, not from when the coordinator has received it
        self._wakeup.set()
        if request is None or self.membership.instance_id is not None:
            return
        try:
            async with asyncio.timeout(2):
                await self._call(request, _top_level, channel=channel)
        except (ConnectionError, TimeoutError, KafkaError) as error:
            log.info("%s could not leave the group: %s", request.member_id, error)

    def check_not_lost(self) -> None:
        """Raise KafkaError if the group continued without this member.

        Without a generation its commit would look like a tool's, and succeed in an empty group.
        """
        if self.membership.lost:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"the group {self.membership.group_id!r} has removed this member"
            )

    async def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        check_owned: Callable[[], None],
        topic_ids: Mapping[str, bytes],
    ) -> None:
        """Commit offsets (the next ones to read). Raises KafkaError if the group has moved on or refuses.

        `check_owned` raises if partitions were revoked since the offsets were taken. `topic_ids` are those of the
        topics that they were taken in: the coordinator refuses them for another topic of the same name.
        """
        self.check_not_lost()
        check_owned()
        identity = self._identity()
        request = group_offsets.commit_request(
            self.membership.group_id,
            offsets,
            topic_ids=topic_ids,
            leader_epoch_of=self._network.metadata.leader_epoch,
            generation=self.membership.generation,
            member_id=self.membership.member_id,
            instance_id=self.membership.instance_id,
        )
        response: OffsetCommitResponse = await self._call(request, group_offsets.first_commit_error)
        for partition, code in group_offsets.commit_errors(response).items():
            if code is ErrorCode.NONE:
                continue
            if code in CONVERSATION:
                self._on_response_code(code, identity)
            raise KafkaError(code, f"commit of {partition}")
        log.debug("%s has committed %s", self.membership.describe(), offsets)
        self.commits += 1

    async def await_positions(
        self, awaited: Mapping[TopicPartition, int], *, max_wait_ms: int, channel: int = POSITIONS
    ) -> dict[TopicPartition, int]:
        """Return the group's committed offsets once one reaches its awaited value, or on a timeout (R9, K616).

        Returns an empty result as soon as the group rebalances, and updates the membership.
        """
        request = group_offsets.position_request(
            self.membership.group_id,
            awaited,
            generation=self.membership.generation,
            member_id=self.membership.member_id,
            max_wait_ms=max_wait_ms,
        )
        identity = self._identity()
        response: ConsumerGroupPositionResponse = await self._network.call_coordinator(
            self.membership.group_id,
            request,
            _top_level,
            channel=channel,
            timeout_ms=max_wait_ms + ANSWER_MARGIN_MS,
        )
        code = ErrorCode(response.error_code)
        if code is ErrorCode.UNKNOWN_MEMBER_ID and identity == self._identity():
            # The request has no instance id. A heartbeat tells a replaced static member from a removed one (KIP-345).
            self.membership.lease.end()
            self.ask_now()
            return {}
        if self._on_response_code(code, identity) is not HeartbeatOutcome.PROCEED:
            return {}
        return {
            TopicPartition(topic.topic, row.partition): row.position
            for topic in response.topics
            for row in topic.partitions
            if row.error_code == ErrorCode.NONE
        }

    async def _topics_of_the_group(self) -> dict[str, Topic]:
        """Fetch the newest metadata of the whole group's topics: the leader assigns from it."""
        topics = sorted({topic for member in self.membership.members for topic in member.topics})
        self._network.follow(*topics)
        metadata: ClusterMetadata = await self._network.refresh()
        return {name: topic for name in topics if (topic := metadata.topics.get(name)) is not None}

    async def _beat(self) -> None:
        """Send heartbeats between joins; find a lost or silent coordinator again, and report a lost membership.

        Heartbeats continue during a rebalance: the application may still process records, and has the rebalance timeout
        to return, not only the session timeout. One that never returns is treated as dead after the same time (Kafka's
        max.poll.interval.ms), though its process lives.
        """
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._heartbeat_interval_s):
                    await self._beat_now.wait()
            self._beat_now.clear()
            joining = self.membership.state in (State.JOINING, State.SYNCING)
            parked = joining and not self.membership.cooperative and not self._is_assigning
            if self.membership.is_outside or parked:
                continue  # an eager member has no partitions meanwhile, and its join occupies the connection
            idle_s = 0 if self._is_polling else self._clock_s() - self._worked_at_s
            if not joining and idle_s > self._rebalance_timeout_ms / 1000:
                log.warning("%s leaves: no poll within max.poll.interval.ms", self.membership.describe())
                await self._send_leave()
                continue
            try:
                await self._beat_once()
            except (ConnectionError, TimeoutError) as error:
                log.info("%s: no heartbeat: %s", self.membership.describe(), error)
            except KafkaError as error:
                if not error.code.retriable:
                    raise
                log.info("%s: no heartbeat: %s", self.membership.describe(), error)
            self._beaten.set()

    async def _beat_once(self) -> None:
        identity, sent_at_s = self._identity(), self._clock_s()
        settled = identity == (self.membership.owner.member_id, self.membership.owner.generation_id)
        response = await self._call(self.membership.heartbeat_request(), _top_level, timeout_ms=self.patience_ms)
        code = ErrorCode(response.error_code)
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS) and identity == self._identity():
            was_unsure = self.unsure
            self.membership.lease.renew(sent_at_s, rebalancing=not settled or code is not ErrorCode.NONE)
            if was_unsure and not self.unsure:
                self._wakeup.set()
        self._on_response_code(code, identity)

    def _on_heartbeats_stopped(self, heartbeats: asyncio.Task[None]) -> None:
        if not heartbeats.cancelled():
            self.failure = self.failure or heartbeats.exception()
            self._wakeup.set()
        self._beaten.set()

    def _identity(self) -> tuple[str, int]:
        return self.membership.member_id, self.membership.generation

    def _on_response_code(self, code: ErrorCode, identity: tuple[str, int]) -> HeartbeatOutcome:
        """Ignore a response to a request sent before a rebalance: it does not concern the current membership."""
        if code is ErrorCode.NONE:
            return HeartbeatOutcome.PROCEED
        if identity != self._identity():
            return HeartbeatOutcome.REJOIN
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.membership.lease.end()
        if self.membership.state in (State.JOINING, State.SYNCING):
            return HeartbeatOutcome.REJOIN
        try:
            fate = self.membership.on_heartbeat(code)
        except KafkaError as error:
            log.warning("%s was refused: %s", self.membership.describe(), error)
            self.failure = error
            self._wakeup.set()
            raise
        if fate is HeartbeatOutcome.REJOIN:
            self._wakeup.set()
        return fate

    async def _call(
        self, request: Any, error_of: Callable[[Any], int], *, timeout_ms: float | None = None, channel: int = GROUP
    ) -> Any:
        return await self._network.call_coordinator(
            self.membership.group_id, request, error_of, channel=channel, timeout_ms=timeout_ms
        )

    async def _call_parked(self, request: Any) -> tuple[Any, float]:
        """Send a request that waits at the coordinator for other members; return the response, and when it was sent."""
        sent_at_s = self._clock_s()
        self._unanswered = True
        response = await self._network.call_coordinator(
            self.membership.group_id,
            request,
            _top_level,
            channel=JOIN if self.membership.cooperative else GROUP,
            timeout_ms=self._rebalance_timeout_ms + ANSWER_MARGIN_MS,
            doubt_ms=self.patience_ms,
        )
        self._unanswered = False
        return response, sent_at_s


def _top_level(response: Any) -> int:
    code: int = response.error_code
    return code
