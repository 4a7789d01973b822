"""Long responses yield to others after some time, and their cost is linear in the request."""

from __future__ import annotations

import pytest

from anabranch.broker.tasks import yield_budget
from anabranch.broker.tasks.yield_budget import (
    ELEMENTS_PER_READING,
    ELEMENTS_PER_YIELD,
    TIME_PER_YIELD_S,
    YieldBudget,
)
from anabranch.controller.state import PendingReply
from anabranch.protocol.apis.create_partitions import CreatePartitionsTopicResult
from anabranch.protocol.errors import MESSAGE_CHARS_MAX, ErrorCode, KafkaError
from tests.broker.yields import manual_clock, yields_of


def elements_until_yields(count: int, element_s: float) -> list[int]:
    """After how many elements a budget is spent, for so many elements that take so long."""
    turns, spent = YieldBudget(), []
    with manual_clock() as time_s:
        for number in range(1, count + 1):
            time_s[0] += element_s
            if turns.is_spent():
                spent.append(number)
    return spent


def test_budget_is_spent_after_its_time() -> None:
    """The clock is read after each twentieth element; the first reading starts the time."""
    assert elements_until_yields(1000, TIME_PER_YIELD_S / 50) == list(range(80, 1000, 80))
    assert elements_until_yields(120, TIME_PER_YIELD_S) == [40, 80, 120]
    assert elements_until_yields(6000, TIME_PER_YIELD_S / 5000) == [5020]


def test_budget_is_a_number_of_elements_while_the_clock_stands_still() -> None:
    assert elements_until_yields(350, 0) == [ELEMENTS_PER_YIELD, 2 * ELEMENTS_PER_YIELD, 3 * ELEMENTS_PER_YIELD]
    with manual_clock():
        turns = YieldBudget()
        assert turns.is_spent(5 * ELEMENTS_PER_YIELD) and not turns.is_spent(ELEMENTS_PER_YIELD - 1)
        assert turns.is_spent(ELEMENTS_PER_READING)


async def test_budget_yields_after_its_number_of_elements_over_all_loops() -> None:
    turns = YieldBudget()

    async def build() -> list[list[str]]:
        rows = [await turns.map(range(ELEMENTS_PER_YIELD // 2), str) for _ in range(20)]
        for _ in range(10 * ELEMENTS_PER_YIELD):
            await turns.spend()
        return rows

    rows, others = await yields_of(build())
    assert rows == [[str(number) for number in range(ELEMENTS_PER_YIELD // 2)]] * 20
    assert 18 <= others <= 22


async def test_short_response_reads_no_clock_and_does_not_yield() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yield_budget, "elapsed_clock", None)
        rows, others = await yields_of(YieldBudget().map(range(ELEMENTS_PER_READING - 2), str))
    assert len(rows) == ELEMENTS_PER_READING - 2 and others == 0


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
