"""Long answers let others have their turn, and none of what they need grows with the square of what is asked."""

from __future__ import annotations

import asyncio

from anabranch.broker.turns import STEP, Turns
from anabranch.controller.state import PendingReply
from anabranch.protocol.apis.create_partitions import CreatePartitionsTopicResult
from anabranch.protocol.errors import MESSAGE_CHARS_MAX, ErrorCode, KafkaError


async def test_others_have_their_turn_after_so_many_elements_over_all_loops() -> None:
    turns, others = Turns(), 0

    def other() -> None:
        nonlocal others
        others += 1
        loop.call_soon(other)

    loop = asyncio.get_running_loop()
    loop.call_soon(other)
    rows = [await turns.each(range(STEP // 2), str) for _ in range(20)]
    assert rows == [[str(number) for number in range(STEP // 2)]] * 20
    assert 8 <= others <= 12
    for _ in range(10 * STEP):
        await turns.step()
    assert 17 <= others <= 24
    before = others
    assert await Turns().each(range(STEP - 1), str) and others == before, "a short answer is built at once"


def test_a_pending_reply_counts_what_is_open() -> None:
    pending = PendingReply({"a": None, "b": None})
    row = CreatePartitionsTopicResult(name="a", error_code=ErrorCode.NONE, error_message=None)
    for _ in range(2):
        pending.note(row)
        assert pending.open_count == 1
    pending.note(CreatePartitionsTopicResult(name="b", error_code=ErrorCode.NONE, error_message=None))
    assert pending.open_count == 0


def test_the_text_of_a_refusal_fits_into_an_answer_whatever_the_peer_wrote() -> None:
    error = KafkaError(ErrorCode.INVALID_REQUEST, "x" * 100_000)
    assert len(error.message) < MESSAGE_CHARS_MAX + 50 and error.message.endswith("... (100000 characters)")
    assert len("\U0001f600" * MESSAGE_CHARS_MAX) * 4 < 32_767
