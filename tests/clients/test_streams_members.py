"""The tasks of a Streams application's members are read from their assignments, of every version."""

from __future__ import annotations

import pytest

from anabranch.clients.streams.assignment_info import AssignmentInfo, encode_assignment_info
from anabranch.clients.streams.subscription_info import SubscriptionInfo, encode_subscription_info
from anabranch.clients.streams.task_id import TaskId
from anabranch.clients.streams_members import (
    STREAM,
    MemberTask,
    application_server,
    tasks_by_subtopology,
    tasks_of_member,
    tasks_text,
)
from anabranch.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    encode_assignment,
    encode_subscription,
)
from anabranch.protocol.streams_protocol import LATEST_VERSION
from anabranch.protocol.topic_partition import TopicPartition

TASKS = [
    MemberTask("active", 0, 0),
    MemberTask("active", 0, 2),
    MemberTask("active", 1, 0),
    MemberTask("removed", 0, 5),
    MemberTask("standby", 0, 1),
]


def assigned(version: int) -> bytes:
    info = AssignmentInfo(
        version=version,
        active_tasks=[TaskId(1, 0), TaskId(0, 2), TaskId(0, 0), TaskId(0, 0)],
        standby_tasks={TaskId(0, 1): [TopicPartition("t", 1)], TaskId(0, 5): []},
    )
    data = encode_assignment_info(info)
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=[], user_data=data))


@pytest.mark.parametrize("version", [1, 4, 5, 10, LATEST_VERSION])
def test_tasks_have_their_roles(version: int) -> None:
    assert tasks_of_member(STREAM, assigned(version)) == TASKS


def test_tasks_are_shown_by_role_or_by_subtopology() -> None:
    assert tasks_text(TASKS) == "active 0_0 0_2 1_0, removed 0_5, standby 0_1"
    assert tasks_by_subtopology(TASKS) == {
        "active 0": [0, 2],
        "active 1": [0],
        "removed 0": [5],
        "standby 0": [1],
    }


def test_other_groups_have_no_tasks() -> None:
    plain = encode_assignment(ConsumerProtocolAssignment(assigned_partitions=[], user_data=None))
    for protocol, assignment in (("range", assigned(11)), (None, b""), (STREAM, b""), (STREAM, b"?"), (STREAM, plain)):
        assert tasks_of_member(protocol, assignment) == []


def test_address_of_queries_is_in_the_subscription() -> None:
    data = encode_subscription_info(SubscriptionInfo(process_id=b"1" * 16, user_end_point="one:80"))
    subscription = encode_subscription(ConsumerProtocolSubscription(topics=["t"], user_data=data))
    assert application_server(STREAM, subscription) == "one:80"
    assert application_server("range", subscription) == application_server(STREAM, b"") == ""
