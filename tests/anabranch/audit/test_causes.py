"""Lost records: one line per place and cause."""

from __future__ import annotations

from anabranch.audit.causes import cause_of, in_lines, lines_of
from anabranch.clients.group_admin import Group, Member
from anabranch.clients.group_gates import Blocker, ClosedGate
from anabranch.protocol.topic_partition import TopicPartition
from anabranch.spark_jobs.verdict import Unread

FIVE, ONE = TopicPartition("orders", 5), TopicPartition("orders", 1)
READER = Member("m-1", "reader", "/127.0.0.1", (ONE,))
BILLING = Group("billing", "Stable", "cooperative-sticky", (READER,))
GATE = ClosedGate(ONE, 2, 4000, -1, READER, (Blocker(FIVE, 480, 460, None),))
LOST = Unread("billing", "orders", 1, 4000, 12)


def test_closed_gate_is_the_cause_of_records_behind_it() -> None:
    waits = "the gate of orders-1 at 4,000 waits for orders-5 to be committed to 480"
    assert cause_of(LOST, BILLING, {ONE: 4000}, [GATE]) == waits
    before = LOST._replace(offset=3990)
    assert cause_of(before, BILLING, {ONE: 3990}, [GATE]) == "the group has committed 3,990, and may still read them"


def test_records_below_commit_will_not_be_read() -> None:
    text = cause_of(LOST, BILLING, {ONE: 5000}, [])
    assert text == "the group has committed 5,000, after these records, and will not read them"


def test_empty_group_is_the_cause() -> None:
    empty = Group("billing", "Empty", "", ())
    assert cause_of(LOST, empty, {ONE: 4000}, []) == "the group has no members"
    assert cause_of(LOST, BILLING, {}, []) == "the group has committed nothing, and may still read them"


def test_partitions_with_one_cause_share_a_line() -> None:
    other = Unread("billing", "orders", 3, 20, 1)
    third = Unread("audit", "orders", 3, 20, 1)
    assert lines_of([LOST, other, third], {LOST: "why", other: "why"}) == [
        "1 record that group audit was not given: orders-3 from 20",
        "13 records that group billing was not given: orders-1 from 4,000, orders-3 from 20: why",
    ]
    assert lines_of([third._replace(group="")], {}) == ["1 record that no group was given: orders-3 from 20"]


def test_without_cluster_causes_are_omitted() -> None:
    assert in_lines(None, [LOST]) == ["12 records that group billing was not given: orders-1 from 4,000"]
    assert in_lines("127.0.0.1:1", []) == []
