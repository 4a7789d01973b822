"""Waits end without progress: values, output and processor time of real processes."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from anabranch.runtime.stall_detection import (
    StallDetector,
    Stalled,
    process_progress,
    processor_ticks,
    wait_while_progressing,
)

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="processor time is read from /proc")


def test_value_unchanged_for_timeout_is_a_stall() -> None:
    detector = StallDetector(10, "a", 100)
    assert not detector.is_stalled("a", 109.9)
    assert not detector.is_stalled("b", 110)
    assert not detector.is_stalled("b", 119.9)
    assert detector.is_stalled("b", 120)


async def test_long_wait_succeeds_while_progress_changes() -> None:
    loop = asyncio.get_running_loop()
    wanted: asyncio.Future[str] = loop.create_future()
    began_s, calls = loop.time(), 0

    def progress() -> int:
        nonlocal calls
        calls += 1
        if loop.time() > began_s + 0.3 and not wanted.done():
            wanted.set_result("ready")
        return calls

    assert await wait_while_progressing(wanted, progress, stall_timeout_s=0.05) == "ready"
    assert loop.time() > began_s + 0.3


async def test_wait_without_progress_raises_stalled_and_cancels() -> None:
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    with pytest.raises(Stalled, match=r"no progress for 0\.05 s"):
        await wait_while_progressing(never, lambda: 1, stall_timeout_s=0.05)
    assert never.cancelled()


async def test_error_of_the_awaitable_is_raised_at_once() -> None:
    async def fail() -> None:
        raise OSError("broken")

    with pytest.raises(OSError, match="broken"):
        await wait_while_progressing(fail(), lambda: 1)


@LINUX
async def test_processor_time_of_descendants_is_progress(tmp_path: Path) -> None:
    """The parent sleeps and its child computes, like a Python driver and its JVM."""
    spin = "while True: pass"
    parent = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {spin!r}])",
        process_group=0,
    )
    try:
        async with asyncio.timeout(120):
            while processor_ticks(parent.pid) < 100:  # noqa: ASYNC110  # another process sets no event here
                await asyncio.sleep(0.05)
    finally:
        os.killpg(parent.pid, 9)
        await parent.wait()
    assert processor_ticks(parent.pid) == 0, "it has ended"


def test_growing_log_is_progress(tmp_path: Path) -> None:
    log = tmp_path / "child.log"
    before = process_progress(os.getpid(), log)
    log.write_text("started\n")
    assert process_progress(os.getpid(), log)[1:] == (8,) != before[1:]
