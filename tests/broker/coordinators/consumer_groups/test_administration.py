"""Commits, fetches, waits and deletion are fenced by the epochs of a KIP-848 group's members."""

from __future__ import annotations

import pytest

from anabranch.broker.coordinators.classic_groups.group_events import Commit, Delete, Observe
from anabranch.broker.coordinators.consumer_groups import administration
from anabranch.broker.coordinators.consumer_groups.consumer_group import ConsumerGroup, ConsumerGroupState
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.broker.coordinators.consumer_groups.world import (
    client,
    driver,
    joined,
    refusal,
    topic_id,
)


def commit(group: ConsumerGroup, member_id: str, epoch: int, *, version: int = 9, transactional: bool = False) -> None:
    event = Commit(
        member_id=member_id, instance_id=None, generation=epoch, transactional=transactional, version=version
    )
    administration.authorize(group, event)


def test_commits_are_fenced_by_the_members_epoch() -> None:
    drive = driver()
    commit(drive.group, "", -1)
    (a,) = joined(drive, "a")
    commit(drive.group, "a", 1)
    commit(drive.group, "a", 1, version=4, transactional=True)
    commit(drive.group, "", -1, transactional=True)
    for member_id, epoch, version, transactional, code in (
        ("a", 2, 9, False, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 0, 9, False, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 1, 8, False, ErrorCode.UNSUPPORTED_VERSION),
        ("x", 1, 9, False, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, 9, False, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", 2, 5, True, ErrorCode.ILLEGAL_GENERATION),
        ("x", 1, 5, True, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        with pytest.raises(KafkaError) as refused:
            commit(drive.group, member_id, epoch, version=version, transactional=transactional)
        assert refused.value.code is code
    a.leave()
    commit(drive.group, "", -1)


def test_offset_fetch_of_a_member_is_fenced_by_its_epoch() -> None:
    drive = driver()
    client(drive, "a").join()
    administration.authorize_fetch(drive.group, None, -1)
    administration.authorize_fetch(drive.group, "a", 1)
    fetch = administration.authorize_fetch
    assert refusal(lambda: fetch(drive.group, "a", 2)) is ErrorCode.STALE_MEMBER_EPOCH
    assert refusal(lambda: fetch(drive.group, "", -1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal(lambda: fetch(drive.group, None, 1)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_only_members_may_observe_and_only_an_empty_group_is_deleted() -> None:
    drive = driver()
    administration.authorize(drive.group, Observe(member_id="", generation=-1))
    (a,) = joined(drive, "a")
    administration.authorize(drive.group, Observe(member_id="a", generation=1))
    for event, code in (
        (Observe(member_id="", generation=-1), ErrorCode.UNKNOWN_MEMBER_ID),
        (Observe(member_id="a", generation=9), ErrorCode.STALE_MEMBER_EPOCH),
        (Delete(), ErrorCode.NON_EMPTY_GROUP),
    ):
        assert refusal(lambda event=event: administration.authorize(drive.group, event)) is code  # type: ignore[misc]
    a.leave()
    administration.authorize(drive.group, Delete())


def test_tombstones_of_a_deleted_group_remove_its_state() -> None:
    drive = driver()
    client(drive, "a", regex="t.*").join()
    drive.group.has_partition_metadata = True
    for record in administration.tombstones(drive.group):
        drive.group.apply(record)
    left = drive.group
    assert not (left.members or left.targets or left.regexes or left.epoch or left.subscribers or left.static)
    assert left.is_free(topic_id("t"), 0) and left.state is ConsumerGroupState.EMPTY


def test_description_leaves_out_deleted_topics() -> None:
    drive = driver()
    drive.topics.make("u", 2)
    client(drive, "a", topics=["t", "u"]).join()
    del drive.topics.known["u"]
    (member,) = administration.describe(drive.group, drive.topics, ("uniform",)).members
    for assignment in (member.assignment, member.target_assignment):
        assert [(row.topic_name, row.partitions) for row in assignment.topic_partitions] == [("t", list(range(6)))]
