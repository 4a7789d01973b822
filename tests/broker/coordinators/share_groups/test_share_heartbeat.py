"""A member gets shareable partitions, and a new coordinator knows the state of the old one.

Method: one group by hand; after each step the group is read anew from its records and has to be the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from anabranch.broker.coordinators.classic_groups.group_events import Delete, Observe
from anabranch.broker.coordinators.consumer_groups.heartbeat import HeartbeatAnswer, Sender
from anabranch.broker.coordinators.share_groups import share_administration, share_heartbeat
from anabranch.broker.coordinators.share_groups.share_group import ShareGroup, ShareGroupState
from anabranch.broker.coordinators.share_groups.share_heartbeat import ShareDecision
from anabranch.broker.coordinators.share_partitions.share_settings import ShareSettings
from anabranch.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatRequest
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.group_records import Record, decode_value, encode
from anabranch.protocol.internal_topics import decode_key
from tests.broker.coordinators.consumer_groups.world import Topics, partitions, topic_id

SETTINGS = ShareSettings(size_max=3, session_timeout_ms=100)
COMPARED = ("epoch", "assignment_epoch", "metadata_hash", "members", "targets", "initializing", "initialized", "names")


@dataclass
class Driver:
    """One coordinator's view of one group, and everything that it wrote."""

    topics: Topics = field(default_factory=Topics)
    group: ShareGroup = field(default_factory=lambda: ShareGroup("g"))
    now_ms: int = 1_000
    journal: list[Record] = field(default_factory=list)

    def take(self, decision: ShareDecision) -> ShareDecision:
        self.journal += decision.records
        for record in decision.records:
            self.group.apply(record)
        for act in decision.then:
            act()
        again = ShareGroup("g")
        for record in self.journal:
            key, content = encode(record)
            read = decode_key(key)
            again.apply((read, None if content is None else decode_value(read, content)))
        assert all(getattr(again, name) == getattr(self.group, name) for name in COMPARED)
        return decision

    def beat(self, member_id: str, epoch: int = 0, topics: list[str] | None = None, **more: Any) -> HeartbeatAnswer:
        """A heartbeat; the partitions that it wants are initialized at once unless `initialize=False`."""
        initialize = more.pop("initialize", True)
        request = ShareGroupHeartbeatRequest(
            group_id="g",
            member_id=member_id,
            member_epoch=epoch,
            subscribed_topic_names=topics or (["t"] if epoch == 0 else None),
            **more,
        )
        share_heartbeat.check_request(request)
        decision = self.take(
            share_heartbeat.heartbeat(
                self.group,
                request,
                Sender(client_id="c", client_host="/h"),
                topics=self.topics,
                settings=SETTINGS,
                now_ms=self.now_ms,
            )
        )
        if initialize and decision.initialize:
            self.take(share_heartbeat.on_initialized(self.group, decision.initialize, self.topics))
        answer: HeartbeatAnswer = decision.answer
        return answer

    def refused(self, *args: Any, **more: Any) -> ErrorCode:
        with pytest.raises(KafkaError) as refusal:
            self.beat(*args, **more)
        return refusal.value.code


@pytest.fixture
def driver() -> Driver:
    made = Driver()
    made.topics.make("t", 2)
    return made


def test_partition_is_assigned_once_its_state_is_initialized(driver: Driver) -> None:
    joined = driver.beat("a", initialize=False)
    assert (joined.epoch, joined.assignment) == (1, {})
    assert driver.group.initializing == partitions(t=(0, 1))
    assert driver.beat("a", 1, initialize=False).assignment is None
    driver.take(share_heartbeat.on_initialized(driver.group, partitions(t=(1,)), driver.topics))
    assert driver.beat("a", 1).assignment == partitions(t=(1,))
    driver.take(share_heartbeat.on_initialized(driver.group, partitions(t=(0,)), driver.topics))
    assert driver.beat("a", 2).assignment == partitions(t=(0, 1))
    assert driver.beat("a", 3).assignment is None, "it knows by now"
    driver.take(share_heartbeat.on_initialized(driver.group, partitions(t=(0,)), driver.topics))
    assert driver.group.epoch == 3, "nothing that is known already"


def test_partitions_are_divided_and_shared_when_there_are_more_members(driver: Driver) -> None:
    driver.beat("a")
    first = driver.beat("a", driver.group.members["a"].epoch)
    assert first.assignment == partitions(t=(0, 1))
    assert driver.beat("b").assignment == partitions(t=(1,))
    assert driver.beat("a", first.epoch).assignment == partitions(t=(0,))
    third = driver.beat("c")
    assert third.assignment is not None
    assert sum(map(len, third.assignment.values())) == 1
    assert driver.refused("d") is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_new_partitions_of_a_topic_are_assigned(driver: Driver) -> None:
    driver.beat("a")
    driver.beat("a", 1)
    driver.topics.make("t", 3)
    driver.beat("a", driver.group.members["a"].epoch)
    assert driver.beat("a", driver.group.members["a"].epoch).assignment == partitions(t=(0, 1, 2))


def test_member_with_wrong_epoch_is_fenced(driver: Driver) -> None:
    assert driver.refused("a", 5) is ErrorCode.UNKNOWN_MEMBER_ID
    driver.beat("a")
    epoch = driver.beat("a", 1).epoch
    assert driver.refused("a", epoch + 1) is ErrorCode.FENCED_MEMBER_EPOCH
    assert driver.beat("a", epoch - 1).epoch == epoch, "its last answer was lost"
    assert driver.beat("a", epoch - 1).assignment is None
    assert driver.beat("a", epoch - 1, ["t"]).assignment == partitions(t=(0, 1)), "a full heartbeat asks for everything"
    driver.beat("b")
    driver.beat("c")
    epoch = driver.beat("a", epoch).epoch
    assert driver.refused("a", 1) is ErrorCode.FENCED_MEMBER_EPOCH


def test_partitions_of_leaving_and_expired_members_are_reassigned(driver: Driver) -> None:
    driver.beat("a")
    driver.beat("b")
    assert driver.beat("b", -1).epoch == -1
    assert driver.group.members.keys() == {"a"}
    assert driver.refused("b", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.group.timers.first() == 1_100
    decision, over = share_heartbeat.fence(driver.group, topics=driver.topics, settings=SETTINGS, now_ms=1_100)
    driver.take(decision)
    assert [one.member_id for one in over] == ["a"]
    assert driver.group.state is ShareGroupState.EMPTY


@pytest.mark.parametrize(
    "wrong",
    [
        {"member_id": ""},
        {"member_id": "x" * 37},
        {"group_id": ""},
        {"rack_id": ""},
        {"member_epoch": -2},
        {"subscribed_topic_names": None},
        {"subscribed_topic_names": []},
    ],
    ids=str,
)
def test_malformed_heartbeat_is_refused(wrong: dict[str, Any]) -> None:
    right = {"group_id": "g", "member_id": "m", "member_epoch": 0, "subscribed_topic_names": ["t"]}
    with pytest.raises(KafkaError) as refusal:
        share_heartbeat.check_request(ShareGroupHeartbeatRequest(**{**right, **wrong}))
    assert refusal.value.code is ErrorCode.INVALID_REQUEST


def test_a_group_is_described_and_deleted(driver: Driver) -> None:
    driver.beat("a", rack_id="r")
    driver.beat("a", 1)
    described = share_administration.describe(driver.group, driver.topics)
    (member,) = described.members
    assert (described.group_state, described.group_epoch, described.assignor_name) == ("Stable", 2, "simple")
    assert (member.rack_id, member.subscribed_topic_names) == ("r", ["t"])
    assert [(row.topic_name, row.partitions) for row in member.assignment.topic_partitions] == [("t", [0, 1])]
    with pytest.raises(KafkaError, match="Stable"):
        share_administration.authorize(driver.group, Delete())
    driver.beat("a", -1)
    share_administration.authorize(driver.group, Delete())
    with pytest.raises(KafkaError) as refusal:
        share_administration.authorize(driver.group, Observe(member_id="", generation=-1))
    assert refusal.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    driver.take(share_heartbeat.topics_removed(driver.group, [topic_id("t")]))
    assert driver.group.initialized == {}
    for record in share_heartbeat.tombstones(driver.group):
        driver.group.apply(record)
    assert (driver.group.epoch, driver.group.assignment_epoch) == (0, 0)
    assert (driver.group.members, driver.group.targets) == ({}, {})
