"""The started requests of one connection: which may run its next step, and in which order failures count."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.broker.dispatch.request_context import CloseConnection
from anabranch.broker.network.eager_coroutine import start_eagerly
from anabranch.broker.network.request_pipeline import RequestPipeline


async def test_completed_wait_is_stepped_and_a_bare_yield_needs_a_task() -> None:
    future = asyncio.get_running_loop().create_future()

    async def work() -> int:
        await future
        await asyncio.sleep(0)
        return 7

    one = RequestPipeline([start_eagerly(work())])
    assert one.awaited is future and not one.step_first()
    future.set_result(None)
    one.wake_first()
    assert not one.step_first() and one.awaited is None
    assert not one.step_first(), "nobody tells when a turn is over"
    assert await one.finish_first(lambda: None) == 7 and not one


@pytest.mark.parametrize("by_task", [True, False])
async def test_step_follows_the_earlier_callbacks_of_its_future(by_task: bool) -> None:
    """In such a callback asyncio ends a connect; before it, the socket gets no transport without an error."""
    future, order = asyncio.get_running_loop().create_future(), list[str]()
    future.add_done_callback(lambda _: order.append("callback"))

    async def work() -> None:
        await future
        order.append("step")

    one = RequestPipeline([start_eagerly(work())])
    future.set_result(None)
    assert not one.step_first() and order == []
    if by_task:
        await one.finish_first(lambda: None)
    else:
        future.add_done_callback(lambda _: one.wake_first())
        await asyncio.sleep(0)
        assert one.step_first()
    assert order == ["callback", "step"]


async def test_cancellation_after_a_failure_cancels_no_other_request() -> None:
    work = RequestPipeline()
    assert not work.cancel_first(asyncio.CancelledError())
    future = asyncio.get_running_loop().create_future()

    async def failing() -> None:
        await future
        raise CloseConnection("no more")

    work.append(start_eagerly(failing()))
    future.set_result(None)
    work.wake_first()
    assert not work.step_first()
    assert not work.cancel_first(asyncio.CancelledError())
    with pytest.raises(CloseConnection, match="no more"):
        await work.finish_first(lambda: None)
