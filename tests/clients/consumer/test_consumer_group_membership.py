"""The member's side of KIP-848 groups: requests, and the effects of responses."""

from __future__ import annotations

import random
from typing import Any

import pytest

from anabranch.clients.consumer.assignors import make_assignors
from anabranch.clients.consumer.classic_group_membership import HeartbeatOutcome, State
from anabranch.clients.consumer.consumer_group_membership import UNTOLD_MS, ConsumerGroupMembership
from anabranch.protocol.apis.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition

ID = bytes(range(16))


def member(**more: Any) -> ConsumerGroupMembership:
    return ConsumerGroupMembership(
        "g",
        ["u", "t"],
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        heartbeat_interval_ms=3000,
        assignors=make_assignors("range"),
        rng=random.Random(1),
        **more,
    )


def answer(epoch: int = 1, code: ErrorCode = ErrorCode.NONE) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, member_epoch=epoch, heartbeat_interval_ms=5000)


def joined(epoch: int = 1) -> ConsumerGroupMembership:
    one = member()
    one.full_request({})
    assert one.on_heartbeat_response(answer(epoch)) is HeartbeatOutcome.PROCEED
    one.owns([TopicPartition("t", 1), TopicPartition("t", 0)])
    return one


def test_joining_member_generates_id_and_sends_all_fields() -> None:
    one = member(client_rack="r", group_instance_id="i")
    request = one.full_request({"t": ID})
    assert len(one.member_id) == 22 and request.member_id == one.member_id
    assert (request.member_epoch, request.topic_partitions, request.subscribed_topic_names) == (0, [], ["t", "u"])
    assert (request.rebalance_timeout_ms, request.rack_id, request.instance_id) == (60_000, "r", "i")
    assert one.state is State.JOINING and one.cooperative


def test_later_full_request_has_owned_partitions() -> None:
    one = joined(epoch=3)
    request = one.full_request({"t": ID})
    assert request.member_epoch == 3
    assert [(row.topic_id, row.partitions) for row in request.topic_partitions or []] == [(ID, [0, 1])]
    assert (one.owner.generation_id, one.owner.member_id) == (3, one.member_id)


def test_lease_ends_with_rebalance_timeout_while_revocation_is_pending() -> None:
    """The coordinator fences a member that does not revoke it in time."""
    one = joined()
    response = answer()
    response.session_timeout_ms = 600_000
    response.assignment = Assignment(topic_partitions=[TopicPartitions(topic_id=ID, partitions=[0])])
    one.renew_lease(response, 100.0)
    assert one.lease.until == 160.0
    one.full_request({"t": ID})
    assert one.on_heartbeat_response(response) is HeartbeatOutcome.PROCEED
    one.renew_lease(response, 130.0)  # 1 is left out
    response.assignment = None
    one.renew_lease(response, 140.0)  # a heartbeat
    assert one.lease.until == 160.0
    one.owns([TopicPartition("t", 0)])
    one.full_request({"t": ID})
    response.assignment = Assignment(topic_partitions=[TopicPartitions(topic_id=ID, partitions=[0, 2])])
    assert one.on_heartbeat_response(response) is HeartbeatOutcome.PROCEED
    one.renew_lease(response, 150.0)
    assert one.lease.until == 210.0


def test_heartbeat_without_change_omits_unchanged_fields() -> None:
    request = joined(epoch=3).consumer_heartbeat_request()
    assert (request.member_epoch, request.topic_partitions, request.subscribed_topic_names) == (3, None, None)
    assert request.rebalance_timeout_ms == -1


def test_leave_request_has_leave_epoch() -> None:
    one = joined()
    assert one.consumer_leave_request().member_epoch == -1 and one.consumer_leave_request(away=True).member_epoch == -2
    assert one.consumer_leave_request(member_id="former").member_id == "former"


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND])
def test_unknown_member_rejoins_under_its_id(code: ErrorCode) -> None:
    one = joined()
    before = one.member_id
    assert one.on_heartbeat(code) is HeartbeatOutcome.REJOIN
    assert one.is_outside and one.keeps_lost and one.lost and one.member_id == before and not one.former_id
    one.owns([])
    assert one.full_request({"t": ID}).member_epoch == 0


def test_fenced_member_rejoins_under_new_id() -> None:
    one = joined()
    before = one.member_id
    assert one.on_heartbeat_response(answer(code=ErrorCode.FENCED_MEMBER_EPOCH)) is HeartbeatOutcome.REJOIN
    assert one.is_outside and one.former_id == before != one.member_id


def test_classic_group_that_cannot_be_converted_is_an_error() -> None:
    one = member()
    one.full_request({})
    with pytest.raises(KafkaError, match="classic"):
        one.on_heartbeat_response(answer(code=ErrorCode.GROUP_ID_NOT_FOUND))


def test_stale_member_epoch_on_commit_keeps_membership() -> None:
    one = joined()
    assert one.on_heartbeat(ErrorCode.STALE_MEMBER_EPOCH) is HeartbeatOutcome.WAIT and one.stable
    one.at_epoch(2)
    assert (one.generation, one.owner.generation_id) == (2, 2)


@pytest.mark.parametrize(
    "code", [ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.ILLEGAL_GENERATION]
)
def test_fatal_response_is_raised(code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        joined().on_heartbeat(code)
    assert refused.value.code is code


def test_session_timeout_is_the_brokers_however_the_consumer_is_configured() -> None:
    """It limits how long a response is waited for."""
    one, response = member(), answer()
    one.renew_lease(response, 100.0)
    assert one.session_timeout_ms == UNTOLD_MS, "Kafka's brokers do not tell it"
    response.session_timeout_ms = 6_000
    one.renew_lease(response, 101.0)
    assert one.session_timeout_ms == 6_000


def test_expired_lease_keeps_member_id_and_epoch() -> None:
    one = joined(epoch=4)
    before = one.member_id
    one.expire()
    assert (one.state, one.member_id, one.generation) == (State.UNJOINED, before, 4)


@pytest.mark.parametrize(
    ("told_ms", "instance_id", "until"), [(60_000, None, 160), (-1, None, 110), (60_000, "i", 110)]
)
def test_lease_without_broker_session_lasts_two_heartbeat_intervals(
    told_ms: int, instance_id: str | None, until: int
) -> None:
    one = member(group_instance_id=instance_id)
    response = answer()
    response.session_timeout_ms = told_ms
    one.renew_lease(response, 100)
    assert one.lease.until == until
