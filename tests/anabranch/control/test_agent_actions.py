"""Actions of rules are signals to the own process; those on other nodes belong to the front."""

from __future__ import annotations

import asyncio
import os
import signal

from anabranch.control.agent_actions import ProcessActions


async def test_stop_is_a_sigterm_to_the_own_process_and_other_actions_have_no_effect() -> None:
    actions = ProcessActions(1, lambda: ("127.0.0.1:1", None))
    came = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, came.set)
    try:
        actions.check_can_freeze()
        actions.apply("kill", 2)  # would end this process
        actions.apply("expire", 1)
        actions.undo("freeze", 1)
        assert not came.is_set()
        actions.apply("stop", 1)
        async with asyncio.timeout(10):
            await came.wait()
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


async def test_kill_ends_a_process_within_the_call() -> None:
    child = os.fork()
    if not child:
        ProcessActions(1, lambda: ("", None)).apply("kill", 1)
        os._exit(0)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
