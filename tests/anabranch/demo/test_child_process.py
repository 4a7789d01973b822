"""Child processes with JSON lines: a slow one, a stuck one, and one that ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from anabranch.demo.child_process import Child, ChildProcessFailed

SLOW = """\
import json, sys, time
for number in range(20):
    time.sleep(0.15)
    print(json.dumps({"event": "progress", "t": number, "sent": number}), flush=True)
print('{"event": "ready"}', flush=True)
"""
STUCK = """\
import json, time
while True:
    time.sleep(0.05)
    print(json.dumps({"event": "progress", "t": time.time(), "sent": 7}), flush=True)
"""
BROKEN = 'import sys\nsys.exit("no such topic")\n'


def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> Child:
    """A child that runs this source as a module."""
    (tmp_path / "child_of_test.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return Child("child", ["child_of_test"], log_path=tmp_path / "child.log", on_line=lambda name, line: None)


async def started(one: Child) -> Child:
    """The child, when it has printed its first progress."""
    await one.start()
    await one.wait_for("progress")
    return one


async def test_child_slower_than_stall_timeout_is_awaited_while_it_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await started(child(tmp_path, monkeypatch, SLOW))
    began_s = asyncio.get_running_loop().time()
    assert await one.wait_for("ready", stall_timeout_s=2) == {"event": "ready"}
    assert asyncio.get_running_loop().time() - began_s > 2
    await one.stop()


async def test_child_that_repeats_the_same_counts_is_stalled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = await started(child(tmp_path, monkeypatch, STUCK))
    try:
        async with asyncio.timeout(60):
            with pytest.raises(ChildProcessFailed, match="did not say 'ready': no progress for 1 s"):
                await one.wait_for("ready", stall_timeout_s=1)
    finally:
        await one.kill()


async def test_ended_child_fails_the_wait_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = child(tmp_path, monkeypatch, BROKEN)
    await one.start()
    with pytest.raises(ChildProcessFailed, match="ended before it said 'ready'\nno such topic"):
        await one.wait_for("ready")
    async with asyncio.timeout(60):
        while not one.failed:  # noqa: ASYNC110  # its end sets no event
            await asyncio.sleep(0.01)
    await one.stop()
