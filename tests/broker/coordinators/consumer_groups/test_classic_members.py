"""Classic members in a KIP-848 group: responses to each of their requests."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from anabranch.broker.coordinators.classic_groups.group_events import Heartbeat, Join, Leave, Sync
from anabranch.broker.coordinators.consumer_groups import classic_members
from anabranch.broker.coordinators.consumer_groups.decision import Decision
from anabranch.broker.coordinators.consumer_groups.member import UNRELEASED, UNREVOKED
from anabranch.broker.coordinators.consumer_groups.timers import Timer
from anabranch.protocol.apis.heartbeat import HeartbeatRequest
from anabranch.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from anabranch.protocol.apis.leave_group import LeaveGroupRequest, MemberIdentity
from anabranch.protocol.apis.sync_group import SyncGroupRequest
from anabranch.protocol.consumer_protocol import (
    ConsumerProtocolSubscription,
    TopicPartitions,
    decode_assignment,
    encode_subscription,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.broker.coordinators.consumer_groups.world import Client, GroupDriver, partitions


class ClassicClient:
    """A consumer of the classic protocol as it sees itself."""

    def __init__(self, drive: GroupDriver, name: str, topics: tuple[str, ...] = ("t",), **more: Any) -> None:
        self.drive, self.name, self.topics = drive, name, topics
        self.member_id, self.generation = "", -1
        self.owned: dict[str, list[int]] = {}
        self.more = {"protocol_type": "consumer", "protocols": ("range",), "instance_id": None} | more

    def apply(self, event: Join | Sync | Heartbeat | Leave) -> Any:
        drive = self.drive
        decision = Decision(drive.group, drive.topics, drive.limits, drive.now_ms)
        classic_members.apply(decision, event, self.name)
        drive.take(decision)
        return decision.answer

    def join(self, version: int = 9) -> Any:
        owned = [TopicPartitions(topic=name, partitions=indexes) for name, indexes in self.owned.items()]
        metadata = encode_subscription(
            ConsumerProtocolSubscription(topics=list(self.topics), user_data=None, owned_partitions=owned)
        )
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            member_id=self.member_id,
            group_instance_id=self.more["instance_id"],
            protocol_type=self.more["protocol_type"],
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name in self.more["protocols"]],
        )
        answer = self.apply(
            Join(ticket=0, request=request, version=version, client_id=self.name, client_host="/1.2.3.4")
        )
        self.member_id = answer.member_id
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            return self.join(version)
        self.generation = answer.generation_id
        return answer

    def sync(self) -> ErrorCode:
        request = SyncGroupRequest(
            group_id="g", generation_id=self.generation, member_id=self.member_id, assignments=[]
        )
        answer = self.apply(Sync(ticket=0, request=request))
        if answer.error_code == ErrorCode.NONE:
            given = decode_assignment(answer.assignment).assigned_partitions
            self.owned = {row.topic: list(row.partitions) for row in given}
        return ErrorCode(answer.error_code)

    def beat(self) -> ErrorCode:
        request = HeartbeatRequest(group_id="g", generation_id=self.generation, member_id=self.member_id)
        return ErrorCode(self.apply(Heartbeat(ticket=0, request=request)).error_code)

    def leave(self) -> Any:
        request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=self.member_id)])
        return self.apply(Leave(ticket=0, request=request, version=5))


def driver() -> GroupDriver:
    made = GroupDriver()
    made.topics.make("t", 4)
    return made


def test_a_classic_member_follows_the_brokers_assignment() -> None:
    drive = driver()
    a = Client(drive, "a", ["t"])
    a.join()
    b = ClassicClient(drive, "b")
    answer = b.join()
    assert (answer.generation_id, answer.leader, answer.members, answer.protocol_name) == (2, "", [], "range")
    assert (b.sync(), b.owned) == (ErrorCode.NONE, {})
    assert b.beat() is ErrorCode.NONE and drive.group.members["b"].state is UNRELEASED
    a.beat()
    a.beat()
    assert b.beat() is ErrorCode.REBALANCE_IN_PROGRESS  # what it waited for is free
    b.join()
    assert (b.sync(), b.owned, b.beat()) == (ErrorCode.NONE, {"t": [2, 3]}, ErrorCode.NONE)
    assert drive.replayed().members == drive.group.members


def test_rejoin_without_a_partition_revokes_it() -> None:
    drive = driver()
    a = ClassicClient(drive, "a")
    a.join()
    a.sync()
    assert a.owned == {"t": [0, 1, 2, 3]}
    b = Client(drive, "b", ["t"])
    b.join()
    assert a.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    a.join()  # a cooperative member still has everything
    assert drive.group.members["a"].state is UNREVOKED and a.generation == 1
    assert (a.sync(), a.owned) == (ErrorCode.NONE, {"t": [0, 1]})
    assert a.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    a.join()
    assert (a.sync(), a.generation, a.beat()) == (ErrorCode.NONE, 2, ErrorCode.NONE)
    assert b.beat().assignment == partitions(t=[2, 3])


def test_join_of_an_eager_member_revokes_all_partitions() -> None:
    drive = driver()
    a = ClassicClient(drive, "a")
    a.join()
    a.sync()
    b = Client(drive, "b", ["t"])
    b.join()
    a.owned = {}
    a.join()
    assert (a.sync(), a.owned, a.generation) == (ErrorCode.NONE, {"t": [0, 1]}, 2)


def test_sync_during_a_rebalance_is_refused_and_starts_the_join_timer() -> None:
    drive = driver()
    a = ClassicClient(drive, "a")
    a.join()
    Client(drive, "b", ["t"]).join()
    assert a.sync() is ErrorCode.REBALANCE_IN_PROGRESS
    assert drive.group.timers.due("a", Timer.JOIN) == drive.now_ms + 60_000


@pytest.mark.parametrize(("timer", "after_ms"), [("session", 10_000), ("join", 60_000), ("sync", 60_000)])
def test_classic_members_are_removed_by_their_own_timers(timer: str, after_ms: int) -> None:
    drive = driver()
    a, b = ClassicClient(drive, "a"), Client(drive, "b", ["t"])
    a.join()
    if timer != "sync":
        a.sync()
    b.join()
    if timer == "join":
        a.beat()
    until = drive.now_ms + after_ms
    while drive.now_ms < until:
        drive.now_ms = min(drive.now_ms + 5_000, until)
        if timer != "session" and drive.now_ms < until:
            a.beat()
        b.beat()
    assert drive.expire() == ["a"]


def test_classic_member_without_common_protocol_is_refused() -> None:
    drive = driver()
    ClassicClient(drive, "a", protocols=("range", "sticky")).join()
    for strange in ({"protocol_type": "connect"}, {"protocols": ("own",)}, {"protocols": ()}):
        with pytest.raises(KafkaError) as refused:
            ClassicClient(drive, "b", **strange).join()
        assert refused.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert ClassicClient(drive, "b", protocols=("sticky",)).join().error_code == ErrorCode.NONE


def test_classic_requests_of_unknown_and_consumer_protocol_members_are_refused() -> None:
    drive = driver()
    Client(drive, "a", ["t"]).join()
    stranger, other = ClassicClient(drive, "x"), ClassicClient(drive, "a")
    for one in (stranger, other):
        one.member_id, one.generation = one.name, 1
        with pytest.raises(KafkaError) as refused:
            one.beat()
        assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
        assert one.leave().members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    b = ClassicClient(drive, "b")
    b.join()
    b.generation -= 1
    with pytest.raises(KafkaError) as refused:
        b.beat()
    assert refused.value.code is ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize(
    ("removes", "answer"), [(False, ErrorCode.UNKNOWN_MEMBER_ID), (True, ErrorCode.NONE)], ids=["3.9", "4.0"]
)
@pytest.mark.parametrize(
    "named",
    [MemberIdentity(member_id="", group_instance_id="i"), MemberIdentity(member_id="a")],
    ids=["by instance", "by id"],
)
def test_leave_of_consumer_protocol_member_depends_on_the_kafka_version(
    named: MemberIdentity, removes: bool, answer: ErrorCode
) -> None:
    drive = driver()
    drive.limits = dataclasses.replace(drive.limits, leave_group_removes_all_kinds=removes)
    Client(drive, "a", ["t"], instance_id="i").join()
    Client(drive, "b", ["t"]).join()
    request = LeaveGroupRequest(group_id="g", members=[named])
    response = ClassicClient(drive, "admin").apply(Leave(ticket=0, request=request, version=5))
    assert [row.error_code for row in response.members] == [answer]
    assert list(drive.group.members) == (["b"] if removes else ["a", "b"])
    assert drive.replayed().members == drive.group.members


def test_static_classic_member_replaces_its_previous_member() -> None:
    drive = driver()
    a, b = Client(drive, "a", ["t"]), ClassicClient(drive, "b", instance_id="i")
    a.join()
    b.join()
    again = ClassicClient(drive, "b2", instance_id="i")
    again.join()
    assert list(drive.group.members) == ["a", "b2"]
    b.more["instance_id"] = "i"
    with pytest.raises(KafkaError) as refused:
        b.join()
    assert refused.value.code is ErrorCode.FENCED_INSTANCE_ID
    assert again.leave().members[0].error_code == ErrorCode.NONE
    assert list(drive.group.members) == ["a"] and drive.replayed().members == drive.group.members
