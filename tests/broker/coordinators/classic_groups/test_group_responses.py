"""Responses of a group, by version."""

from __future__ import annotations

import pytest

from anabranch.broker.coordinators.classic_groups import group_responses as responses
from anabranch.broker.coordinators.classic_groups.group_events import Join, Leave, Tick
from anabranch.broker.handlers.describe_groups import add_gates
from anabranch.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from anabranch.protocol.apis.leave_group import LeaveGroupRequest, MemberIdentity
from anabranch.protocol.codec import decode, encode
from anabranch.protocol.errors import ErrorCode
from tests.broker.coordinators.driver import Driver


def join_event(version: int) -> Join:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=1,
        member_id="m",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=memoryview(b"xx").tobytes())],
    )
    return Join(ticket=1, request=request, version=version, client_id="c", client_host="/h")


@pytest.mark.parametrize("version", range(10))
def test_refused_join_is_encoded_in_every_version(version: int) -> None:
    refused = responses.refusal(join_event(version), ErrorCode.NOT_COORDINATOR)
    said, _ = decode(type(refused.response), version, encode(refused.response, version))
    assert (refused.ticket, said.error_code, said.member_id, said.generation_id) == (1, 16, "m", -1)
    assert said.protocol_name == (None if version >= 7 else "")


def test_leave_response_has_single_and_batch_form() -> None:
    request = LeaveGroupRequest(group_id="g", member_id="old", members=[MemberIdentity(member_id="new")])
    for version, member_id in [(2, "old"), (3, "new")]:
        assert [one.member_id for one in responses.leaving(Leave(ticket=1, request=request, version=version))] == [
            member_id
        ]


def test_assignment_is_described_only_of_a_stable_group() -> None:
    drive = Driver()
    (member_id,) = drive.stable(1)
    shown = responses.describe_group(drive.group)
    assert (shown.group_state, shown.protocol_data, shown.members[0].member_assignment) == (
        "Stable",
        "range",
        member_id.encode(),
    )
    drive.join(member_id)
    hidden = responses.describe_group(drive.group)
    assert (hidden.group_state, hidden.protocol_data) == ("CompletingRebalance", "")
    assert (hidden.members[0].member_id, hidden.members[0].member_assignment) == (member_id, b"")


def test_gates_are_described_only_after_add_gates() -> None:
    drive = Driver()
    (member_id,) = drive.stable(1)
    drive.group.members.by_id[member_id].holds_gates = True
    row = responses.describe_group(drive.group)
    assert (row.withheld, row.members[0].holds_gates) == ([], False)
    add_gates(row, drive.group, {("t", 1): "0@0 to reach offset 5"})
    assert row.members[0].holds_gates
    assert [(one.name, [(part.partition_index, part.reason) for part in one.partitions]) for one in row.withheld] == [
        ("t", [(1, "0@0 to reach offset 5")])
    ]


def test_unknown_group_is_dead_and_group_of_another_coordinator_is_an_error() -> None:
    assert responses.describe_missing_group("g", ErrorCode.NONE).group_state == "Dead"
    elsewhere = responses.describe_missing_group("g", ErrorCode.NOT_COORDINATOR)
    assert (elsewhere.error_code, elsewhere.error_message) == (ErrorCode.NOT_COORDINATOR, None)
    missing = responses.describe_missing_group("g", ErrorCode.GROUP_ID_NOT_FOUND)
    assert missing.error_message == "there is no classic group 'g'"


def test_tick_has_no_refusal() -> None:
    with pytest.raises(AssertionError, match="is not a request"):
        responses.refusal(Tick(), ErrorCode.NONE)


def test_only_a_missing_group_is_described_as_dead_and_missing() -> None:
    missing = responses.describe_missing_group("g", ErrorCode.GROUP_ID_NOT_FOUND)
    assert (missing.group_state, missing.error_message) == ("Dead", "there is no classic group 'g'")
    elsewhere = responses.describe_missing_group("g", ErrorCode.NOT_COORDINATOR)
    assert (elsewhere.group_state, elsewhere.error_message) == ("", None)
