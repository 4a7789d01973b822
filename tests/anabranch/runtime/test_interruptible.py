"""Ctrl-C during a command's coroutine."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from anabranch.runtime.interruptible import run_interruptible


async def interrupted_in_a_callback() -> None:
    """A callback finds a future pending, is interrupted, and completes the future: as asyncio's own callbacks do."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def complete() -> None:
        if not future.done():
            os.kill(os.getpid(), signal.SIGINT)
            future.set_result(None)

    loop.call_soon(complete)
    await future
    pytest.fail("the interrupt did not cancel the coroutine")


def test_interrupted_callback_ends_without_an_error(caplog: pytest.LogCaptureFixture) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run_interruptible(interrupted_in_a_callback())
    assert caplog.text == ""
    assert signal.getsignal(signal.SIGINT) is before


def test_result_is_returned_and_handler_restored() -> None:
    before = signal.getsignal(signal.SIGINT)
    assert run_interruptible(asyncio.sleep(0, "done")) == "done"
    assert signal.getsignal(signal.SIGINT) is before


def test_second_interrupt_does_not_wait_for_a_busy_loop() -> None:
    async def busy() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("the second interrupt was not raised at once")

    with pytest.raises(KeyboardInterrupt):
        run_interruptible(busy())


def test_own_cancellation_is_no_interrupt() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run_interruptible(cancelled())
