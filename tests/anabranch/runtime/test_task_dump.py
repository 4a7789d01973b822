"""The dump of a loop's waiting tasks."""

from __future__ import annotations

import asyncio

from anabranch.runtime.task_dump import END, task_dump


async def inner() -> None:
    await asyncio.get_running_loop().create_future()


async def outer() -> None:
    await inner()


async def test_each_task_is_dumped_with_all_frames() -> None:
    task = asyncio.create_task(outer(), name="stuck")
    await asyncio.sleep(0)
    lines = task_dump(asyncio.get_running_loop()).splitlines()
    at = lines.index("--- task stuck")
    assert [line.rpartition(" ")[2] for line in lines[at + 1 : at + 3]] == ["outer", "inner"]
    assert all(f"{__file__}:" in line for line in lines[at + 1 : at + 3])
    assert lines[-1] == END
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert "--- task stuck" not in task_dump(asyncio.get_running_loop())
