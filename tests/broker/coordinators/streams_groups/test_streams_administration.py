"""Offsets of a streams group are fenced by the epochs of its tasks; what is told about a group and its endpoints."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.broker.coordinators.classic_groups.group_events import Commit, Delete, Observe
from anabranch.broker.coordinators.consumer_groups.topics_view import TopicsView
from anabranch.broker.coordinators.streams_groups import streams_administration
from anabranch.broker.coordinators.streams_groups.streams_settings import StreamsSettings
from anabranch.broker.coordinators.streams_groups.tasks import STANDBY
from anabranch.protocol.apis.streams_group_heartbeat import Endpoint
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.broker.coordinators.consumer_groups.world import settle
from tests.broker.coordinators.streams_groups.world import (
    COUNTS,
    Client,
    Driver,
    active,
    driver,
    joined,
    subtopology,
)

__all__ = ["driver"]


def commit(member: str, epoch: int, *partitions: int, **more: Any) -> Commit:
    return Commit(
        member_id=member, instance_id=None, generation=epoch, partitions=[("t", one) for one in partitions], **more
    )


def test_commits_are_fenced_by_the_epoch_of_each_task(driver: Driver) -> None:
    group = driver.group

    def refused(event: Commit) -> ErrorCode | None:
        try:
            streams_administration.authorize(group, event)
        except KafkaError as error:
            return error.code
        return None

    assert refused(commit("", -1, 0)) is None, "nobody is there"
    a, b = Client(driver, "a"), Client(driver, "b")
    a.join()
    assert refused(commit("", -1, 0)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(commit("", -1, 0, transactional=True)) is None
    assert refused(commit("a", 2, 0)) is None
    assert refused(commit("a", 2, 0, version=8)) is ErrorCode.UNSUPPORTED_VERSION
    assert refused(commit("a", 3, 0)) is ErrorCode.STALE_MEMBER_EPOCH
    assert refused(commit("a", 1, 0)) is ErrorCode.STALE_MEMBER_EPOCH
    assert refused(commit("a", 1, 0, transactional=True)) is ErrorCode.ILLEGAL_GENERATION
    b.join()
    a.beat()
    assert refused(commit("a", 2, 2)) is None, "it gives 2 up, and may say how far it came"
    a.beat()
    assert a.epoch == 3 and refused(commit("a", 2, 0)) is None, "0 is its own since epoch 2"
    assert refused(commit("a", 2, 0, 2)) is ErrorCode.STALE_MEMBER_EPOCH, "2 is not any more"
    b.beat()
    assert refused(commit("b", 2, 2)) is ErrorCode.STALE_MEMBER_EPOCH, "2 is b's since epoch 3"


def test_commit_of_a_task_is_fenced_by_the_epoch_of_its_assignment(driver: Driver) -> None:
    a, b = Client(driver, "a"), Client(driver, "b")
    a.join()
    driver.topics.make("t", 5)
    a.beat()
    b.join()
    a.beat()
    assert (a.epoch, driver.group.members["a"].revoking) == (3, active(s0=(3, 4)))
    streams_administration.authorize(driver.group, commit("a", 2, 3))  # it has given it up only for the records
    with pytest.raises(KafkaError):
        streams_administration.authorize(driver.group, commit("a", 2, 4))  # which is its own since epoch 3


def test_commit_before_a_standby_became_active_is_fenced(driver: Driver) -> None:
    driver.settings = StreamsSettings(standbys=1)
    a, b = joined(driver, "a", "b", parts=COUNTS)
    settle(a, b)
    copied = next(iter(b.owned[STANDBY, "1"]))
    before = b.epoch
    a.leave()
    settle(b)
    event = Commit(member_id="b", instance_id=None, generation=before, partitions=[("words", copied)])
    with pytest.raises(KafkaError) as refused:
        streams_administration.authorize(driver.group, event)
    assert refused.value.code is ErrorCode.STALE_MEMBER_EPOCH


def test_offset_fetch_is_allowed_for_members_and_without_member_id(driver: Driver) -> None:
    Client(driver, "a").join()
    streams_administration.authorize_fetch(driver.group, None, -1)
    streams_administration.authorize_fetch(driver.group, "a", 2)
    for member_id, epoch, code in (
        ("a", 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("b", 2, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 2, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        with pytest.raises(KafkaError) as refused:
            streams_administration.authorize_fetch(driver.group, member_id, epoch)
        assert refused.value.code is code


def test_group_with_members_is_not_deleted_or_observed(driver: Driver) -> None:
    (a,) = joined(driver, "a")
    for event, code in (
        (Delete(), ErrorCode.NON_EMPTY_GROUP),
        (Observe(member_id="a", generation=2), ErrorCode.GROUP_ID_NOT_FOUND),
    ):
        with pytest.raises(KafkaError) as refused:
            streams_administration.authorize(driver.group, event)
        assert refused.value.code is code
    assert driver.group.subscribed_topics() == {"t"}
    a.leave()
    streams_administration.authorize(driver.group, Delete())
    assert driver.group.subscribed_topics() == set()


def test_described_topology_has_partition_counts_once_configured(driver: Driver) -> None:
    (a,) = joined(driver, "a", parts=COUNTS)

    def widths() -> dict[str, int]:
        described = streams_administration.describe(driver.group)
        assert described.topology is not None
        rows = [
            row
            for part in described.topology.subtopologies or ()
            for row in (*part.repartition_source_topics, *part.state_changelog_topics)
        ]
        return {row.name: row.partitions for row in rows}

    assert widths() == {"words": 0, "counts": 0}
    settle(a)
    assert widths() == {"words": 4, "counts": 4}
    (member,) = streams_administration.describe(driver.group).members
    assert (member.process_id, member.client_host, member.topology_epoch) == ("process-a", "/1.2.3.4", 0)
    assert member.assignment == member.target_assignment
    assert [row.partitions for row in member.assignment.active_tasks] == [[0, 1, 2, 3]] * 2


def test_members_receive_the_endpoints_of_partitions(driver: Driver) -> None:
    driver.topics.make("u", 1)
    parts = [subtopology("0", "t", "u")]
    a, b = Client(driver, "a", parts), Client(driver, "b", parts)
    a.join(user_endpoint=Endpoint(host="h", port=1))
    b.join(user_endpoint=Endpoint(host="i", port=2))
    known = b.beat().endpoint_epoch
    assert not b.beat(endpoint_information_epoch=known).include_endpoints
    a.beat()
    a.beat()
    response = b.beat(endpoint_information_epoch=known)
    assert response.include_endpoints and response.endpoint_epoch > known
    view: TopicsView = driver.topics
    rows = streams_administration.endpoints(driver.group, view)
    assert {row.user_endpoint.host: {one.topic: one.partitions for one in row.active_partitions} for row in rows} == {
        "h": {"t": [0, 1], "u": [0]},
        "i": {"t": [2, 3], "u": []},
    }
