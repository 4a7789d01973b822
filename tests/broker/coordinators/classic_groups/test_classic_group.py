"""The state of a group that survives a failover, and its end after a close."""

from __future__ import annotations

import random

from anabranch.broker.coordinators.classic_groups.classic_group import ClassicGroup
from anabranch.broker.coordinators.classic_groups.group_state import COMPLETING, PREPARING, STABLE, GroupLimits
from anabranch.protocol.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from anabranch.protocol.errors import ErrorCode
from tests.broker.coordinators.driver import Driver, new_group


def successor(group: ClassicGroup, now_ms: int = 7, **limits: int) -> ClassicGroup:
    """The group as the next coordinator reads it from the journal."""
    value = group.snapshot({member.member_id: member.assignment for member in group.members})
    return ClassicGroup.from_journal(group.group_id, value, GroupLimits(**limits), random.Random(1), now_ms)


def subscribed(*topics: str) -> dict[str, bytes]:
    return {"range": encode_subscription(ConsumerProtocolSubscription(topics=list(topics), user_data=None))}


def test_subscribed_topics_survive_a_failover() -> None:
    """Otherwise the offsets of their topics would expire."""
    drive = Driver()
    drive.stable(1, protocols=subscribed("orders", "payments"))
    assert drive.group.subscribed_topics() == {"orders", "payments"}
    assert successor(drive.group).subscribed_topics() == {"orders", "payments"}


def test_gate_support_of_members_survives_a_failover() -> None:
    drive = Driver()
    ids = drive.stable(2, protocols=subscribed("orders"))
    assert drive.group.gated_by_broker
    drive.group.members.by_id[ids[0]].holds_gates = True
    after = successor(drive.group)
    assert [after.members.by_id[one].holds_gates for one in ids] == [True, False]
    assert [member.metadata("range") for member in after.members] == [subscribed("orders")["range"]] * 2
    assert after.gated_by_broker
    after.members.by_id[ids[1]].holds_gates = True
    assert not after.gated_by_broker, "nobody needs the coordinator's"
    assert not successor(Driver(new_group()).group).gated_by_broker


def test_group_with_the_assignor_of_kafkajs_is_gated_by_the_broker() -> None:
    drive = Driver()
    drive.stable(1, protocols={"RoundRobinAssigner": subscribed("orders")["range"]})
    assert drive.group.gated_by_broker


def test_group_with_custom_assignor_or_protocol_type_is_not_gated_by_the_broker() -> None:
    drive = Driver()
    drive.stable(1, protocols={"stream": subscribed("orders")["range"]})
    assert not drive.group.gated_by_broker
    drive = Driver()
    drive.stable(1, protocols=subscribed("orders"), protocol_type="connect")
    assert not drive.group.gated_by_broker


def test_subscribed_topics_of_other_protocol_types_are_unknown() -> None:
    drive = Driver()
    drive.stable(1, protocols=subscribed("orders"), protocol_type="connect")
    assert drive.group.subscribed_topics() is None
    drive = Driver()
    drive.stable(1, protocols={"range": b"no subscription"})
    assert drive.group.subscribed_topics() is None
    assert new_group().subscribed_topics() is None


def test_state_leader_and_sessions_survive_a_failover() -> None:
    drive = Driver()
    ids = drive.stable(2)
    drive.group.members.leader_id = ids[1]
    after = successor(drive.group, now_ms=90_000)
    assert after.state is STABLE and after.members.leader_id == ids[1]
    assert after.state_since_ms == drive.group.state_since_ms, "retention counts from then"
    assert {one.session_deadline_ms for one in after.members} == {
        90_000 + one.session_timeout_ms for one in after.members
    }


def test_new_coordinator_with_other_bounds_keeps_the_timeouts_of_members() -> None:
    """A member's lease follows its requested timeout: no coordinator may shorten it."""
    drive = Driver()
    drive.stable(2)
    before = {one.member_id: (one.session_timeout_ms, one.rebalance_timeout_ms) for one in drive.group.members}
    after = successor(drive.group, now_ms=90_000, session_timeout_ms_min=1, session_timeout_ms_max=2)
    assert {one.member_id: (one.session_timeout_ms, one.rebalance_timeout_ms) for one in after.members} == before
    assert all(one.session_deadline_ms == 90_000 + before[one.member_id][0] for one in after.members)


def test_closed_group_has_no_deadline() -> None:
    for reach in (PREPARING, COMPLETING):
        drive = Driver()
        leader, follower = drive.stable(2)
        drive.draw_id()
        drive.join(leader)
        if reach is COMPLETING:
            drive.group.members.expire_pending_members(drive.now_ms + 10**6)
            drive.join(follower)
        assert drive.group.state is reach and drive.group.next_deadline() is not None
        drive.draw_id()
        drive.close()
        assert drive.group.next_deadline() is None


def test_dead_group_answers_coordinator_not_available() -> None:
    drive = Driver()
    (member,) = drive.stable(1)
    drive.close()
    gone = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert drive.heartbeat(member) is drive.commit(member, 1) is drive.observe(member, 1) is gone
    assert drive.answers[drive.sync(member)].error_code == gone
    assert drive.answers[drive.join(member)].error_code == gone
    assert drive.leave((member, None)).error_code == gone
