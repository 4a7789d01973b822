"""Each request that matches a rule of a front is a question, and is not hit without an answer in time."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from anabranch.control.actions import UnknownNode
from anabranch.control.decisions import Decisions, QuestionRow
from anabranch.faults.active_rule import Decision
from anabranch.faults.matching import RequestView
from tests.anabranch.faults.samples import PEER, SURROUNDINGS, armed, by_name

NEVER_S = 60.0


def view() -> RequestView:
    return RequestView(by_name("Produce", 9), PEER, 0, SURROUNDINGS)


def rule(name: str = "r") -> Any:
    return armed(name=name, api=("Produce",), error="REQUEST_TIMED_OUT")


class Front:
    """A front that follows the questions of an agent."""

    def __init__(self, decisions: Decisions) -> None:
        self.following = decisions.follow()

    async def next(self) -> QuestionRow:
        async with asyncio.timeout(10):
            return cast("QuestionRow", await anext(self.following))


async def test_answer_of_the_front_decides() -> None:
    decisions = Decisions(lambda rule, reason: None, NEVER_S)
    front = Front(decisions)
    assert await front.next() is None, "the stream has begun"
    for number, decision in ((1, Decision(hit=True)), (2, Decision(hit=False, spent=True))):
        deciding = asyncio.ensure_future(decisions.decide(rule(), view()))
        row = await front.next()
        assert row == {"id": number, "rule": "r", "node": 1, "api": "Produce", "version": 9, "client": "app"}
        assert decisions.rows == [row]
        decisions.answer(number, decision)
        assert await deciding == decision
    assert decisions.rows == []


async def test_without_a_front_nothing_is_hit_and_it_is_reported_once_until_an_answer() -> None:
    told: list[tuple[str, str]] = []
    decisions = Decisions(lambda rule, reason: told.append((rule, reason)), NEVER_S)
    assert not (await decisions.decide(rule(), view())).hit
    assert not (await decisions.decide(rule(), view())).hit
    assert not (await decisions.decide(rule("other"), view())).hit
    assert told == [("r", "no front is connected"), ("other", "no front is connected")]
    front = Front(decisions)
    await front.next()
    deciding = asyncio.ensure_future(decisions.decide(rule(), view()))
    decisions.answer((await front.next())["id"], Decision(hit=True))
    assert (await deciding).hit
    await front.following.aclose()
    assert not (await decisions.decide(rule(), view())).hit
    assert len(told) == 3


async def test_question_without_an_answer_in_time_is_no_hit_and_closed() -> None:
    told: list[str] = []
    decisions = Decisions(lambda rule, reason: told.append(reason), 0.01)
    front = Front(decisions)
    await front.next()
    assert not (await decisions.decide(rule(), view())).hit
    assert told == ["the front has not answered within 0.01 s"]
    with pytest.raises(UnknownNode, match="question 1 is not open"):
        decisions.answer(1, Decision(hit=True))


async def test_open_questions_are_repeated_to_a_new_stream_and_the_earlier_one_ends() -> None:
    decisions = Decisions(lambda rule, reason: None, NEVER_S)
    first = Front(decisions)
    await first.next()
    deciding = asyncio.ensure_future(decisions.decide(rule(), view()))
    assert (await first.next())["id"] == 1
    second = Front(decisions)
    assert await second.next() is None
    assert (await second.next())["id"] == 1
    with pytest.raises(StopAsyncIteration):
        await first.next()
    decisions.answer(1, Decision(hit=True))
    assert (await deciding).hit


async def test_question_of_a_cancelled_request_is_closed() -> None:
    decisions = Decisions(lambda rule, reason: None, NEVER_S)
    front = Front(decisions)
    await front.next()
    deciding = asyncio.ensure_future(decisions.decide(rule(), view()))
    await front.next()
    deciding.cancel()
    await asyncio.gather(deciding, return_exceptions=True)
    assert decisions.rows == []
