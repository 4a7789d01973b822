"""Long responses yield to others, and their cost is linear in the request."""

from __future__ import annotations

import asyncio

from anabranch.broker.tasks.yield_budget import ELEMENTS_PER_YIELD, YieldBudget
from anabranch.controller.state import PendingReply
from anabranch.protocol.apis.create_partitions import CreatePartitionsTopicResult
from anabranch.protocol.errors import MESSAGE_CHARS_MAX, ErrorCode, KafkaError


async def test_budget_yields_after_its_number_of_elements_over_all_loops() -> None:
    turns, others = YieldBudget(), 0

    def other() -> None:
        nonlocal others
        others += 1
        loop.call_soon(other)

    loop = asyncio.get_running_loop()
    loop.call_soon(other)
    rows = [await turns.map(range(ELEMENTS_PER_YIELD // 2), str) for _ in range(20)]
    assert rows == [[str(number) for number in range(ELEMENTS_PER_YIELD // 2)]] * 20
    assert 8 <= others <= 12
    for _ in range(10 * ELEMENTS_PER_YIELD):
        await turns.spend()
    assert 17 <= others <= 24
    before = others
    assert await YieldBudget().map(range(ELEMENTS_PER_YIELD - 1), str) and others == before, (
        "a short answer is built at once"
    )


def test_budget_is_spent_once_per_its_number_of_elements() -> None:
    turns = YieldBudget()
    spent = [turns.is_spent(2) for _ in range(ELEMENTS_PER_YIELD + 2)]
    first = ELEMENTS_PER_YIELD // 2
    assert [number for number, is_spent in enumerate(spent) if is_spent] == [first, 2 * first + 1]


def test_pending_reply_counts_open_rows() -> None:
    pending = PendingReply({"a": None, "b": None})
    row = CreatePartitionsTopicResult(name="a", error_code=ErrorCode.NONE, error_message=None)
    for _ in range(2):
        pending.note(row)
        assert pending.open_count == 1
    pending.note(CreatePartitionsTopicResult(name="b", error_code=ErrorCode.NONE, error_message=None))
    assert pending.open_count == 0


def test_message_of_a_kafka_error_is_bounded() -> None:
    error = KafkaError(ErrorCode.INVALID_REQUEST, "x" * 100_000)
    assert len(error.message) < MESSAGE_CHARS_MAX + 50 and error.message.endswith("... (100000 characters)")
    assert len("\U0001f600" * MESSAGE_CHARS_MAX) * 4 < 32_767
