"""Changes of an assignment, and the rotation through it."""

from __future__ import annotations

from anabranch.clients.consumer.assignment import Assignment
from anabranch.clients.consumer.progress import UNKNOWN
from anabranch.protocol.topic_partition import TopicPartition


def test_assignment_is_replaced_adjusted_and_visited_in_turn() -> None:
    a, b, c = (TopicPartition("t", index) for index in range(3))
    assignment = Assignment()
    assert assignment.in_turn() == []
    assignment.replace([b, a])
    assignment[a].begin(7)
    assert assignment.positions() == {a: 7}
    assert not assignment.positioned
    firsts = [assignment.in_turn()[0].partition for _ in range(4)]
    assert firsts == [b, a, b, a]
    assignment.adjust([a, c])
    assert [one.position for one in assignment] == [7, UNKNOWN]
    assignment[a].committed = 7
    assert assignment.positions() == {}
    assignment.drop_topic("t")
    assert len(assignment) == 0
    assert assignment.get(a) is None
    assert a not in assignment
