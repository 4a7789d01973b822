"""Positions exchanged between members, and the requests that they wake up."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.broker.coordinators.offsets.consumer_positions import Positions
from anabranch.protocol.apis.consumer_group_position import (
    ConsumerGroupPositionRequest,
    ConsumerGroupPositionRequestPartition,
    ConsumerGroupPositionRequestTopic,
)
from anabranch.protocol.errors import ErrorCode

Row = tuple[int, bool, int]


def exchange(positions: Positions, member: str, *rows: Row, generation: int = 1) -> list[Row]:
    """`rows` are (partition, need_position, position)."""
    response = positions.exchange(request(member, generation, rows))
    assert response.error_code == 0
    return [(one.partition, one.need_position, one.position) for topic in response.topics for one in topic.partitions]


def request(member: str, generation: int, rows: Any, max_wait_ms: int = 0) -> ConsumerGroupPositionRequest:
    partitions = [
        ConsumerGroupPositionRequestPartition(
            partition=one[0], need_position=one[1], position=one[2], awaited_offset=one[3] if len(one) > 3 else -1
        )
        for one in rows
    ]
    return ConsumerGroupPositionRequest(
        group_id="g",
        generation_id=generation,
        member_id=member,
        topics=[ConsumerGroupPositionRequestTopic(topic="t", partitions=partitions)],
        max_wait_ms=max_wait_ms,
    )


def test_positions_are_exchanged_as_in_the_kip() -> None:
    """Need, request, report, response: four heartbeats, as in section 7."""
    positions = Positions()
    assert exchange(positions, "waiter", (0, True, -1)) == [(0, False, -1)], "nobody knows yet"
    assert exchange(positions, "owner") == [(0, True, -1)], "please report"
    assert exchange(positions, "owner", (0, False, 17)) == [(0, True, 17)]
    assert exchange(positions, "waiter", (0, True, -1)) == [(0, False, 17)]
    assert exchange(positions, "waiter") == [], "no longer interested"
    assert exchange(positions, "owner") == []


def test_position_is_dropped_with_its_generation() -> None:
    positions = Positions()
    exchange(positions, "owner", (0, False, 17))
    assert exchange(positions, "waiter", (0, True, -1)) == [(0, False, 17)]
    assert exchange(positions, "waiter", (0, True, -1), generation=2) == [(0, False, -1)]


def test_position_is_dropped_with_its_member() -> None:
    positions = Positions()
    exchange(positions, "owner", (0, False, 17), (1, True, -1))
    assert positions.members() == {"owner"}
    positions.forget({"owner"})
    assert exchange(positions, "waiter", (0, True, -1)) == [(0, False, -1)]


def watching(committed: dict[tuple[str, int], int], *rows: Any, max_wait_ms: int = 100) -> tuple[Positions, list[Any]]:
    positions = Positions()
    event = request("m", 1, rows, max_wait_ms)
    return positions, positions.watch("ticket", event, lambda one: committed.get(one, -1), 1000)


def test_watch_with_reached_position_or_no_wait_completes_immediately() -> None:
    for rows, max_wait_ms in [
        ([(0, True, -1, 5)], 100),  # reached already
        ([(0, True, -1, 9), (1, True, -1, 3)], 100),  # any is enough
        ([(0, True, -1)], 0),  # a mere question
        ([(0, True, -1, 9)], 0),  # no time to wait
    ]:
        positions, (answer,) = watching({("t", 0): 5, ("t", 1): 3}, *rows, max_wait_ms=max_wait_ms)
        assert answer.response.topics[0].partitions[0].position == 5
        assert positions.watches == [] and positions.next_deadline() is None


def test_only_requested_positions_are_returned() -> None:
    _, (answer,) = watching({}, (0, True, -1), (1, False, 7), max_wait_ms=0)
    assert [row.partition for row in answer.response.topics[0].partitions] == [0]


def test_watch_completes_when_a_target_offset_is_committed() -> None:
    committed = {("t", 0): 5}
    positions, answers = watching(committed, (0, True, -1, 6), (1, True, -1, 0))
    assert answers == [] and positions.next_deadline() == 1100

    def offset_of(one: tuple[str, int]) -> int:
        return committed.get(one, -1)

    committed["t", 2] = 99
    assert positions.on_offsets_committed([("t", 2), ("t", 0)], offset_of) == []
    assert positions.expire(offset_of, 1099) == []
    committed["t", 1] = 0
    (answer,) = positions.on_offsets_committed([("t", 1)], offset_of)
    assert answer.ticket == "ticket"
    assert [row.position for row in answer.response.topics[0].partitions] == [5, 0]
    assert positions.on_offsets_committed([("t", 1)], offset_of) == [], "answered once"


@pytest.mark.parametrize("others", [0, 9])
def test_watch_completes_whether_it_awaits_more_or_fewer_partitions_than_are_committed(others: int) -> None:
    committed = {("t", 0): 5, ("t", 1): 7}
    positions, _ = watching(committed, (0, True, -1, 6), (1, True, -1, 8), (2, True, -1, 1))
    more = [("other", index) for index in range(others)]
    assert positions.on_offsets_committed([("t", 1), *more], lambda one: committed.get(one, -1)) == []
    committed["t", 1] = 8
    assert positions.on_offsets_committed([("t", 0), *more], lambda one: committed.get(one, -1)) == []
    assert len(positions.on_offsets_committed([*more, ("t", 1)], lambda one: committed.get(one, -1))) == 1


def test_watch_without_targets_is_interrupted_by_a_rebalance() -> None:
    positions, answers = watching({})
    assert answers == [] and positions.next_deadline() == 1100
    (answer,) = positions.interrupt(ErrorCode.REBALANCE_IN_PROGRESS)
    assert answer.response.error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_watch_ends_by_timeout_rebalance_or_disconnect() -> None:
    positions, _ = watching({}, (0, True, -1, 6))
    (answer,) = positions.expire(lambda one: -1, 1100)
    assert (answer.response.error_code, answer.response.topics[0].partitions[0].position) == (0, -1)
    positions, _ = watching({}, (0, True, -1, 6))
    (answer,) = positions.interrupt(ErrorCode.REBALANCE_IN_PROGRESS)
    assert (answer.response.error_code, answer.response.topics) == (ErrorCode.REBALANCE_IN_PROGRESS, [])
    positions, _ = watching({}, (0, True, -1, 6))
    positions.drop("ticket")
    assert positions.interrupt(ErrorCode.REBALANCE_IN_PROGRESS) == []
