"""One member and every response of a coordinator, without a coordinator."""

import json

import pytest

from anabranch.clients.consumer.assignors import make_assignors
from anabranch.clients.consumer.classic_group_membership import (
    NO_GENERATION,
    ClassicMembership,
    HeartbeatOutcome,
    State,
)
from anabranch.clients.consumer.consumer_partition_assignor import MemberAssignment
from anabranch.protocol.apis.join_group import JoinGroupResponse, JoinGroupResponseMember
from anabranch.protocol.apis.sync_group import SyncGroupResponse
from anabranch.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition


def member(*names: str, **settings: str) -> ClassicMembership:
    chosen = make_assignors(names or ("lineage", "range"))
    return ClassicMembership(
        "g",
        ["b", "a"],
        session_timeout_ms=6000,
        rebalance_timeout_ms=60000,
        heartbeat_interval_ms=3000,
        assignors=chosen,
        **settings,
    )


def joined(one: ClassicMembership, *, leader: str = "me", generation: int = 1) -> HeartbeatOutcome:
    members = [
        JoinGroupResponseMember(member_id="me", metadata=one.join_request().protocols[0].metadata),
    ]
    return one.on_join_response(
        JoinGroupResponse(
            error_code=0,
            generation_id=generation,
            protocol_name="lineage",
            leader=leader,
            member_id="me",
            members=members if leader == "me" else [],
        )
    )


def synced(one: ClassicMembership, *indexes: int, user_data: bytes | None = None) -> tuple[TopicPartition, ...]:
    given = ConsumerProtocolAssignment(
        assigned_partitions=[TopicPartitions(topic="a", partitions=list(indexes))], user_data=user_data
    )
    fate, assigned = one.on_sync_response(SyncGroupResponse(error_code=0, assignment=encode_assignment(given)))
    assert fate is HeartbeatOutcome.PROCEED
    return assigned.partitions


def stable() -> ClassicMembership:
    one = member()
    joined(one)
    synced(one, 0, 1)
    return one


def test_join_retries_with_member_id_and_sends_owned_partitions() -> None:
    one = member()
    assert (one.state, one.generation) == (State.UNJOINED, NO_GENERATION)
    assert one.join_request().member_id == ""
    answer = JoinGroupResponse(
        error_code=ErrorCode.MEMBER_ID_REQUIRED,
        generation_id=-1,
        protocol_name="",
        leader="",
        member_id="me",
        members=[],
    )
    assert one.on_join_response(answer) is HeartbeatOutcome.REJOIN
    assert one.join_request().member_id == "me", "comes back with the id it was given (KIP-394)"
    assert joined(one) is HeartbeatOutcome.PROCEED
    assert (one.state, one.is_leader, [view.topics for view in one.members]) == (State.SYNCING, True, [("a", "b")])
    assert synced(one, 1) == (TopicPartition("a", 1),)
    assert one.state is State.STABLE
    subscription = decode_subscription(one.join_request().protocols[0].metadata)
    assert (subscription.owned_partitions[0].partitions, subscription.generation_id) == ([1], 1)


def test_r19_leader_sends_its_topic_generations_with_assignment() -> None:
    one = member()
    joined(one)
    given = MemberAssignment((*(TopicPartition("a", index) for index in range(3)), TopicPartition("b", 0)))
    (row,) = one.sync_request({"me": given}, {"a": 4}).assignments
    decoded = decode_assignment(row.assignment)
    assert json.loads(decoded.user_data or b"") == {"generations": {"a": 4}}
    _, assigned = one.on_sync_response(SyncGroupResponse(error_code=0, assignment=row.assignment))
    assert assigned.generations == {"a": 4}
    assert len(assigned.partitions) == 4


@pytest.mark.parametrize("user_data", [None, b"", b"\x00\x00\x00\x07", b"[]", b"{}"], ids=repr)
def test_assignment_of_foreign_leader_has_no_generations(user_data: bytes | None) -> None:
    one = member()
    joined(one, leader="somebody")
    assert one.sync_request().assignments == []
    assert synced(one, 0, 2, user_data=user_data) == (TopicPartition("a", 0), TopicPartition("a", 2))
    assert one.on_sync_response(SyncGroupResponse(error_code=0, assignment=b""))[1].partitions == ()


@pytest.mark.parametrize(
    ("code", "fate", "keeps_id", "keeps_generation"),
    [
        (ErrorCode.NONE, HeartbeatOutcome.PROCEED, True, True),
        (ErrorCode.REBALANCE_IN_PROGRESS, HeartbeatOutcome.REJOIN, True, True),
        (ErrorCode.ILLEGAL_GENERATION, HeartbeatOutcome.REJOIN, True, False),
        (ErrorCode.UNKNOWN_MEMBER_ID, HeartbeatOutcome.REJOIN, False, False),
        (ErrorCode.NOT_COORDINATOR, HeartbeatOutcome.FIND_COORDINATOR, True, True),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, HeartbeatOutcome.FIND_COORDINATOR, True, True),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, HeartbeatOutcome.WAIT, True, True),
    ],
)
def test_heartbeat_error_determines_outcome_and_kept_identity(
    code: ErrorCode, fate: HeartbeatOutcome, keeps_id: bool, keeps_generation: bool
) -> None:
    one = stable()
    assert one.on_heartbeat(code) is fate
    assert (one.state is State.STABLE) == (fate is not HeartbeatOutcome.REJOIN)
    assert (one.member_id == "me") == keeps_id
    assert (one.generation == 1) == keeps_generation
    owned = decode_subscription(one.join_request().protocols[0].metadata).owned_partitions
    assert bool(owned) == keeps_generation, "what a lost member owned is not its own to keep (KIP-429)"


@pytest.mark.parametrize(
    "code", [ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.INVALID_SESSION_TIMEOUT]
)
def test_fatal_heartbeat_error_is_raised(code: ErrorCode) -> None:
    with pytest.raises(KafkaError, match="'g'") as refused:
        stable().on_heartbeat(code)
    assert refused.value.code == code


def test_static_member_sends_instance_id_in_every_request() -> None:
    one = member(group_instance_id="desk-1")
    requests = (one.join_request(), one.sync_request(), one.heartbeat_request(), one.leave_request().members[0])
    assert {request.group_instance_id for request in requests} == {"desk-1"}
