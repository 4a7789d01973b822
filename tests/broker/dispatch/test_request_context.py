"""Declarations of handlers, and rows with separate responses."""

from __future__ import annotations

from typing import cast

import pytest

from anabranch.broker.authorization.peer import Peer
from anabranch.broker.dispatch.request_context import (
    CloseConnection,
    RequestContext,
    answer_each,
    declaration_of,
    handles,
    refuse_if_lost,
    version_range,
)
from anabranch.broker.dispatch.services import Services
from anabranch.broker.tasks.yield_budget import YieldBudget
from anabranch.protocol.apis.heartbeat import HeartbeatRequest
from anabranch.protocol.errors import ErrorCode, KafkaError


@pytest.mark.parametrize(("text", "versions"), [("0-11", (0, 11)), ("4", (4, 4)), ("3-3", (3, 3))])
def test_version_range_is_parsed(text: str, versions: tuple[int, int]) -> None:
    assert version_range(text) == versions


async def test_handler_declaration_leaves_the_function_callable() -> None:
    @handles(HeartbeatRequest, versions="1-3")
    async def heartbeat() -> int:
        return 5

    declared = declaration_of(heartbeat)
    assert (declared.request, declared.first_version, declared.last_version) == (HeartbeatRequest, 1, 3)
    assert await heartbeat() == 5


def test_request_of_a_lost_connection_is_refused() -> None:
    peer = Peer("127.0.0.1")
    ctx = RequestContext(cast(Services, None), 9, "client", peer)
    refuse_if_lost(ctx)
    peer.connection.is_lost = True
    with pytest.raises(CloseConnection):
        refuse_if_lost(ctx)


async def test_refused_row_does_not_fail_others() -> None:
    def answer(number: int) -> str:
        if number == 1:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "no")
        return f"row {number}"

    rows = await answer_each(YieldBudget(), range(3), answer, lambda number, code: f"{number}: {code.name}")
    assert rows == ["row 0", "1: INVALID_TOPIC_EXCEPTION", "row 2"]
    with pytest.raises(ZeroDivisionError):
        await answer_each(
            YieldBudget(), [0], lambda number: str(1 // number), lambda number, code: "a bug is no refusal"
        )
