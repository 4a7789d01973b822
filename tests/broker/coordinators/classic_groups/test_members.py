"""Members of a group: leader, votes, static members."""

from __future__ import annotations

import pytest

from anabranch.broker.coordinators.classic_groups.members import Member, Members
from anabranch.protocol.errors import ErrorCode, KafkaError


def member(member_id: str, *protocols: str, instance_id: str | None = None) -> Member:
    return Member(
        member_id=member_id,
        instance_id=instance_id,
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=10 * len(member_id),
        session_timeout_ms=1,
        protocols=tuple((name, name.encode() + member_id.encode()) for name in protocols or ("range",)),
    )


def members(*all_of_them: Member) -> Members:
    found = Members()
    for one in all_of_them:
        found.add(one)
    return found


def test_first_member_leads_and_the_oldest_is_the_next_leader() -> None:
    a, b, c = member("a"), member("b"), member("c")
    group = members(a, b, c)
    assert group.leader_id == "a"
    group.remove(b)
    assert group.leader_id == "a"
    group.remove(a)
    assert group.leader_id == "c"
    group.remove(c)
    assert group.leader_id is None and len(group) == 0 and group.rebalance_timeout_ms == 0


def test_protocol_with_most_votes_is_selected() -> None:
    group = members(member("a", "x", "y"), member("b", "y", "x"), member("c", "z", "y", "x"))
    assert group.common_protocols() == ["x", "y"]
    assert group.choose_protocol() == "y"
    assert members(member("a", "x", "y"), member("b", "y", "x")).choose_protocol() == "x", "a tie: the earlier voter's"


def test_rebalance_timeout_is_the_longest_of_the_members() -> None:
    assert members(member("a"), member("long")).rebalance_timeout_ms == 40


def test_a_static_member_is_replaced_in_place() -> None:
    group = members(member("a-1", instance_id="a"), member("b-1", instance_id="b"))
    group.replace_static(group.by_id["a-1"], "a-2")
    assert list(group.by_id) == ["a-2", "b-1"] and group.leader_id == "a-2"
    assert group.check("a-2", "a").instance_id == "a"
    for member_id, instance_id, error in [
        ("a-1", "a", ErrorCode.FENCED_INSTANCE_ID),
        ("a-1", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a-2", "z", ErrorCode.UNKNOWN_MEMBER_ID),
    ]:
        with pytest.raises(KafkaError) as refused:
            group.check(member_id, instance_id)
        assert refused.value.code is error


def test_metadata_of_an_unsupported_protocol_is_empty() -> None:
    assert member("a", "x").metadata("x") == b"xa"
    assert member("a", "x").metadata("y") == member("a").metadata(None) == b""
