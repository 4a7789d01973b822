"""A minimal member of a share group (KIP-932), which shows how such groups behave in runs.

This package has no share consumer for applications; this one has no API for them, and no rules beyond the protocol's.
It sends heartbeats, keeps one session with each leader of its assignment, and reports the records that it received and
the outcomes of its acknowledgements.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from anabranch.chaos.share_session import Acknowledgement, PartitionId, SharedRecord, ShareSession, Verdict, check
from anabranch.clients.connection import Connection
from anabranch.clients.security import Security
from anabranch.protocol.apis.find_coordinator import FindCoordinatorRequest
from anabranch.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from anabranch.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatRequest
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.host_port import parse_host_port

JOINING: Final = 0
LEAVING: Final = -1
SET: Final = 0
GROUP_RESOURCE: Final = 32
RETRY_BACKOFF_S: Final = 0.1
"""Between two searches for leaders: Kafka's `retry.backoff.ms`."""
FAILURES: Final = (KafkaError, OSError, TimeoutError)


class ShareMember:
    """One member, which reads one topic."""

    def __init__(
        self,
        servers: Sequence[str],
        group: str,
        member_id: str,
        topic: str,
        *,
        rng: random.Random,
        request_timeout_ms: int = 30_000,
        heartbeat_s: float = 1.0,
        security: Security | None = None,
    ) -> None:
        self.group = group
        self.member_id = member_id
        self.topic = topic
        self.epoch = JOINING
        self.assigned: set[PartitionId] = set()
        self._servers = list(servers)
        self._rng = rng
        self._timeout_ms = request_timeout_ms
        self._heartbeat_s = heartbeat_s
        self._security = security
        self._subscription_sent = False
        """Whether the last heartbeat was answered; if not, the next one requests the full assignment."""
        self._brokers: dict[int, tuple[str, int]] = {}
        self._leaders: dict[PartitionId, int] | None = None
        self._coordinator: Connection | None = None
        self._guide: Connection | None = None
        self._sessions: dict[int, ShareSession] = {}

    # --- membership

    async def beat_forever(self) -> None:
        """Send heartbeats until cancelled, whatever happens."""
        while True:
            try:
                await self.beat()
            except FAILURES:
                await self._drop_coordinator()
            await asyncio.sleep(self._heartbeat_s)

    async def beat(self) -> None:
        """Send one heartbeat; the first one joins, and so does the next one after a removal. Raises its errors."""
        if self._coordinator is None or self._coordinator.closed:
            self._coordinator = await self._find_coordinator()
        request = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            subscribed_topic_names=None if self._subscription_sent else [self.topic],
        )
        self._subscription_sent = False
        response = await self._coordinator.call(request)
        if response.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self.epoch, self.assigned = JOINING, set()
            return
        check(response.error_code, response.error_message)
        self.epoch, self._subscription_sent = response.member_epoch, True
        if response.assignment is not None:
            rows = response.assignment.topic_partitions
            self.assigned = {(row.topic_id, index) for row in rows for index in row.partitions}

    async def close(self) -> None:
        """End the sessions and leave the group, as far as brokers are reachable."""
        for session in self._sessions.values():
            with contextlib.suppress(*FAILURES):
                await session.finish()
        with contextlib.suppress(*FAILURES):
            self.epoch = LEAVING
            await self.beat()
        await self.vanish()

    async def vanish(self) -> None:
        """Close all connections abruptly: the sessions end with them, and the membership some time later."""
        for session in self._sessions.values():
            await session.drop()
        self._sessions.clear()
        await self._drop_coordinator()
        if self._guide is not None:
            await self._guide.close()

    async def _find_coordinator(self) -> Connection:
        guide = await self._any_broker()
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group])
        (found,) = (await guide.call(request)).coordinators
        check(found.error_code, found.error_message)
        return await self._open(found.host, found.port)

    async def _drop_coordinator(self) -> None:
        if self._coordinator is not None:
            await self._coordinator.close()
            self._coordinator = None

    # --- records

    async def poll(self, max_records: int, max_wait_ms: int) -> list[SharedRecord]:
        """Fetch from the leaders, one after the other, with pending acknowledgements.

        A leader that does not answer, or refuses, does not prevent the others' deliveries, as in Java's share consumer:
        the next poll looks up the leaders again. Raises an error if no leader delivers anything.
        """
        got: list[SharedRecord] = []
        failed: BaseException | None = None
        by_leader = await self._assigned_by_leader()
        for node in self._rng.sample(sorted(by_leader), len(by_leader)):
            wait_ms = 0 if got else max_wait_ms
            try:
                session = await self._session(node)
                got += await session.fetch(by_leader[node], max_records=max_records, max_wait_ms=wait_ms)
            except FAILURES as error:
                self._leaders, failed = None, error
            else:
                if session.sent_away:
                    self._leaders = None
        for node in self._sessions.keys() - by_leader.keys():
            with contextlib.suppress(*FAILURES):
                await self._sessions.pop(node).finish()
        if failed is not None and not got:
            raise failed
        if not by_leader:
            await asyncio.sleep(self._heartbeat_s)
        elif self._leaders is None and not got:
            await asyncio.sleep(RETRY_BACKOFF_S)
        return got

    async def acknowledge(self, sayings: Iterable[Acknowledgement], *, later: bool = False) -> None:
        """Acknowledge records; `later` with the next fetch. Raises an error after all were sent."""
        by_session: dict[ShareSession, list[Acknowledgement]] = defaultdict(list)
        for one in sayings:
            if one.record.session.lives:
                by_session[one.record.session].append(one)
            else:
                one.settle(False)  # the lock is lost with the session
        failed: BaseException | None = None
        for session, ones in by_session.items():
            if later and Verdict.RENEW not in {one.verdict for one in ones}:
                session.acknowledge_later(ones)
                continue
            try:
                await session.acknowledge(ones)
            except FAILURES as error:
                failed = error
        if failed is not None:
            raise failed

    # --- brokers

    async def _assigned_by_leader(self) -> dict[int, set[PartitionId]]:
        if self._leaders is None or not self.assigned <= self._leaders.keys():
            await self._look_around()
        assert self._leaders is not None
        found: dict[int, set[PartitionId]] = defaultdict(set)
        for one in self.assigned & self._leaders.keys():
            found[self._leaders[one]].add(one)
        if not self.assigned <= self._leaders.keys():
            self._leaders = None  # some have no leader now: the next poll looks them up
        return found

    async def _look_around(self) -> None:
        guide = await self._any_broker()
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self.topic)], allow_auto_topic_creation=False)
        response = await guide.call(request)
        self._brokers = {one.node_id: (one.host, one.port) for one in response.brokers}
        self._leaders = {
            (topic.topic_id, row.partition_index): row.leader_id
            for topic in response.topics
            for row in topic.partitions
            if row.leader_id in self._brokers
        }

    async def _session(self, node: int) -> ShareSession:
        session = self._sessions.get(node)
        if session is None or not session.lives:
            if session is not None:
                await session.drop()
            connection = await self._open(*self._brokers[node])
            session = self._sessions[node] = ShareSession(node, connection, self.group, self.member_id, self.topic)
        return session

    async def _any_broker(self) -> Connection:
        if self._guide is None or self._guide.closed:
            self._guide = await self._open(*parse_host_port(self._rng.choice(self._servers)))
        return self._guide

    async def _open(self, host: str, port: int) -> Connection:
        return await Connection.open(
            host,
            port,
            client_id=self.member_id,
            request_timeout_ms=self._timeout_ms,
            connect_timeout_ms=self._timeout_ms,
            security=self._security,
        )


async def begin_at_earliest(server: str, group: str, *, security: Security | None = None) -> None:
    """Let a new group start at the earliest record. Raises the errors of the request."""
    connection = await Connection.open(*parse_host_port(server), client_id="settings", security=security)
    try:
        setting = AlterableConfig(name="share.auto.offset.reset", config_operation=SET, value="earliest")
        resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=[setting])
        response = await connection.call(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
    finally:
        await connection.close()
    check(response.responses[0].error_code, response.responses[0].error_message)
