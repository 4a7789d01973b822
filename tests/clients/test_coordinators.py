"""The coordinator of a key is looked up once, and again after it moves or dies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.clients.coordinators import Coordinators
from anabranch.protocol.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from anabranch.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from anabranch.protocol.errors import ErrorCode, KafkaError


class Nodes:
    """Two nodes; `coordinator` is what any of them names, `codes` how the coordinator answers."""

    def __init__(self) -> None:
        self.metadata: Any = SimpleNamespace(nodes={1: None, 2: None})
        self.coordinator, self.looked_up = 1, 0
        self.codes: list[ErrorCode | Exception] = []
        self.asked: list[int] = []
        self.lookup_code = ErrorCode.NONE
        self.frozen, self.thawed = 0, asyncio.Event()
        self.on_look_up: Callable[[int], None] = lambda times: None

    async def refresh(self) -> Any:
        return self.metadata

    async def call(self, node_id: int, request: Any, *, timeout_ms: float | None, channel: int) -> Any:
        self.asked.append(node_id)
        if node_id == self.frozen:
            await self.thawed.wait()
        code = self.codes.pop(0) if self.codes else ErrorCode.NONE
        if isinstance(code, Exception):
            raise code
        return HeartbeatResponse(error_code=code)

    async def ask_any(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        self.looked_up += 1
        self.on_look_up(self.looked_up)
        return FindCoordinatorResponse(error_code=self.lookup_code, node_id=self.coordinator)

    async def retry(self, operation: Callable[[], Awaitable[Any]]) -> Any:
        for _ in range(3):
            try:
                return await operation()
            except (KafkaError, ConnectionError, TimeoutError) as error:
                last = error
        raise last


async def beat(
    coordinators: Coordinators, on_unknown_outcome: Callable[[], None] = lambda: None, doubt_ms: float | None = None
) -> ErrorCode:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    answer = await coordinators.call(
        "g",
        request,
        lambda one: one.error_code,
        timeout_ms=None,
        channel=0,
        doubt_ms=doubt_ms,
        on_unknown_outcome=on_unknown_outcome,
    )
    return ErrorCode(answer.error_code)


async def test_coordinator_is_looked_up_once_per_key() -> None:
    nodes = Nodes()
    coordinators = Coordinators(nodes)
    assert [await coordinators.find("g", 0) for _ in range(3)] == [1, 1, 1]
    assert nodes.looked_up == 1
    await coordinators.find("g", 1)
    assert nodes.looked_up == 2, "a transactional id of that name is another key"
    coordinators.forget("g", 0)
    nodes.coordinator = 2
    assert (await coordinators.find("g", 0), await coordinators.find("g", 1)) == (2, 1)


async def test_coordinator_missing_in_metadata_is_looked_up_again() -> None:
    nodes = Nodes()
    coordinators = Coordinators(nodes)
    await coordinators.find("g", 0)
    del nodes.metadata.nodes[1]
    nodes.coordinator = 2
    assert await coordinators.find("g", 0) == 2
    nodes.metadata.nodes, nodes.coordinator = {}, 3
    with pytest.raises(KafkaError) as unknown:
        await coordinators.find("g", 0)
    assert unknown.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize(
    "moved",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ConnectionResetError(),
        TimeoutError(),
    ],
)
async def test_moved_or_failed_coordinator_is_followed(moved: ErrorCode | Exception) -> None:
    nodes = Nodes()
    coordinators = Coordinators(nodes)
    await coordinators.find("g", 0)
    nodes.codes, nodes.coordinator = [moved], 2
    failed_at: list[int] = []
    assert await beat(coordinators, on_unknown_outcome=lambda: failed_at.extend(nodes.asked)) is ErrorCode.NONE
    assert nodes.asked == [1, 2]
    assert failed_at == [1]


async def test_response_that_may_take_long_is_not_awaited_from_a_node_that_coordinates_no_longer() -> None:
    """A frozen node answers nothing, and a join may take minutes."""
    nodes = Nodes()
    nodes.frozen = 1

    def move(times: int) -> None:
        nodes.lookup_code = ErrorCode.COORDINATOR_NOT_AVAILABLE if times == 3 else ErrorCode.NONE
        nodes.coordinator = 2 if times > 4 else 1

    nodes.on_look_up = move
    failed: list[None] = []
    coordinators = Coordinators(nodes)
    assert await beat(coordinators, lambda: failed.append(None), doubt_ms=1) is ErrorCode.NONE
    assert (nodes.asked, failed, nodes.looked_up) == ([1, 2], [None], 6)


async def test_response_of_a_slow_coordinator_is_awaited() -> None:
    nodes = Nodes()
    nodes.frozen = 1
    nodes.on_look_up = lambda times: nodes.thawed.set() if times == 3 else None
    assert await beat(Coordinators(nodes), doubt_ms=1) is ErrorCode.NONE
    assert nodes.asked == [1]


async def test_loading_coordinator_is_retried_and_other_errors_are_returned() -> None:
    nodes = Nodes()
    coordinators = Coordinators(nodes)
    nodes.codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID]
    assert await beat(coordinators) is ErrorCode.UNKNOWN_MEMBER_ID
    assert (nodes.asked, nodes.looked_up) == ([1, 1], 1)


async def test_refused_lookup_is_an_error() -> None:
    nodes = Nodes()
    nodes.lookup_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    with pytest.raises(KafkaError) as refused:
        await Coordinators(nodes).find("g", 0)
    assert refused.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
