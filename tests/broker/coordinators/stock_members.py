"""Stock consumers as group members: they know partitions, but no key epochs or gates."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from anabranch import Admin, TopicPartition
from anabranch.clients.group_admin import committed_offsets
from anabranch.clients.group_offsets import commit_errors, commit_request, first_commit_error
from anabranch.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from anabranch.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from anabranch.protocol.apis.offset_commit import OffsetCommitResponse
from anabranch.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from anabranch.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from anabranch.protocol.errors import ErrorCode

Answer = TypeVar("Answer")
GROUP, TOPIC = "readers", "orders"


class StockMember:
    """One member; as leader it deals out all partitions that the metadata has, in turn."""

    def __init__(
        self,
        admin: Admin,
        *,
        instance: str | None = None,
        protocol: str = "range",
        protocol_type: str = "consumer",
        holds_gates: bool = False,
    ) -> None:
        self.admin = admin
        admin.network.follow(TOPIC)
        self.instance = instance
        self.protocol = protocol
        self.protocol_type = protocol_type
        self.holds_gates = holds_gates
        self.member_id = ""
        self.generation = -1
        self.assigned: frozenset[int] = frozenset()
        self.user_data = b"of the leader"

    async def _ask(self, request: Any) -> Any:
        return await self.admin.network.call_coordinator(GROUP, request, lambda answer: answer.error_code)

    async def join(self) -> JoinGroupResponse:
        """Join, with the member id if it has one, or is given one."""
        subscription = encode_subscription(ConsumerProtocolSubscription(topics=[TOPIC], user_data=None))
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=self.protocol_type,
            protocols=[JoinGroupRequestProtocol(name=self.protocol, metadata=subscription)],
            holds_gates=self.holds_gates,
        )
        answer: JoinGroupResponse = await self._ask(request)
        self.member_id = answer.member_id or self.member_id
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            return await self.join()
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
        self.generation = answer.generation_id
        return answer

    async def sync(self, members: Sequence[str] = ()) -> ErrorCode:
        """Fetch the assignment, or bring it for these members."""
        await self.admin.network.refresh()
        known = self.admin.network.metadata.topics[TOPIC].partitions
        rows = []
        for place, member_id in enumerate(sorted(members)):
            mine = TopicPartitions(topic=TOPIC, partitions=sorted(known)[place :: len(members)])
            given = ConsumerProtocolAssignment(assigned_partitions=[mine], user_data=self.user_data)
            rows.append(SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(given)))
        answer: SyncGroupResponse = await self._ask(
            SyncGroupRequest(
                group_id=GROUP,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance,
                protocol_type=self.protocol_type,
                protocol_name=self.protocol,
                assignments=rows,
            )
        )
        if answer.error_code == ErrorCode.NONE:
            found = decode_assignment(bytes(answer.assignment))
            assert found.user_data in (None, self.user_data), "what is the assignors' own stays"
            self.assigned = frozenset(index for topic in found.assigned_partitions for index in topic.partitions)
        return ErrorCode(answer.error_code)

    async def take_part(self) -> frozenset[int]:
        """Join and sync, until there is an assignment."""
        while True:
            joined = await self.join()
            leads = joined.leader == self.member_id
            code = await self.sync([one.member_id for one in joined.members] if leads else [])
            if code is ErrorCode.NONE:
                return self.assigned
            assert code is ErrorCode.REBALANCE_IN_PROGRESS, code

    async def heartbeat(self) -> ErrorCode:
        answer: HeartbeatResponse = await self._ask(
            HeartbeatRequest(
                group_id=GROUP,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance,
            )
        )
        return ErrorCode(answer.error_code)

    async def told_to_rejoin(self) -> frozenset[int]:
        """Wait for a heartbeat with REBALANCE_IN_PROGRESS, and rejoin."""
        await asked_until(self.heartbeat, lambda code: code is ErrorCode.REBALANCE_IN_PROGRESS)
        return await self.take_part()

    async def commit(self, offsets: dict[int, int]) -> None:
        member = {"generation": self.generation, "member_id": self.member_id, "instance_id": self.instance}
        await commit(self.admin, offsets, **member)


async def commit(admin: Admin, offsets: dict[int, int], **sender: Any) -> None:
    """Commit offsets of the topic in the name of a member."""
    request = commit_request(GROUP, {TopicPartition(TOPIC, index): at for index, at in offsets.items()}, **sender)
    answer: OffsetCommitResponse = await admin.network.call_coordinator(GROUP, request, first_commit_error)
    assert set(commit_errors(answer).values()) == {ErrorCode.NONE}


async def committed(admin: Admin) -> dict[int, int]:
    """What the group has committed, by partition."""
    return {place.partition: offset for place, offset in (await committed_offsets(admin.network, GROUP)).items()}


async def asked_until(ask: Callable[[], Awaitable[Answer]], good: Callable[[Answer], bool]) -> Answer:
    """Ask again until the answer is what is waited for."""
    while True:
        answer = await ask()
        if good(answer):
            return answer
        await asyncio.sleep(0.02)
