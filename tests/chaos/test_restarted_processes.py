"""Processes are restarted when they end, killed and frozen by faults, and ended with the run."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from anabranch.chaos import restarted_processes
from anabranch.chaos.restarted_processes import ProcessesFailed, RestartedProcesses, state_of

pytestmark = [pytest.mark.processes]

PATIENCE_S = 300.0
SLEEPER = (sys.executable, "-c", "import signal; signal.pause()")


def processes(directory: Path, words: Sequence[str], *, has_worked: bool = False) -> RestartedProcesses:
    return RestartedProcesses("p", [words] * 2, directory / "p.log", has_worked=lambda: has_worked)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            (sys.executable, "-c", "raise SystemExit('no such option')"),
            "ends each time before any work: no such option",
        ),
        (("no-such-program",), "no-such-program cannot be run"),
    ],
    ids=["it ends", "no such program"],
)
async def test_failing_command_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: Sequence[str], told: str
) -> None:
    monkeypatch.setattr(restarted_processes, "AGAIN_S", 0.0)
    one = processes(tmp_path, words)
    tasks = one.tasks()
    with pytest.raises(ProcessesFailed, match=told):
        await tasks[0]
    await one.stop(tasks)


async def test_processes_that_have_worked_are_restarted_without_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restarted_processes, "AGAIN_S", 0.0)
    monkeypatch.setattr(restarted_processes, "FRUITLESS", 1)
    one = processes(tmp_path, ("true",), has_worked=True)
    tasks = one.tasks()
    async with asyncio.timeout(PATIENCE_S):
        while one.ended < 5 and not any(task.done() for task in tasks):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert not any(task.done() for task in tasks)
    await one.stop(tasks)


async def test_killed_process_is_started_again(tmp_path: Path) -> None:
    one = processes(tmp_path, SLEEPER)
    tasks = one.tasks()
    async with asyncio.timeout(PATIENCE_S):
        await until_all_run(one)
        before = {number: process.pid for number, process in one._running.items()}
        assert (one.kill(random.Random(0)) or "").startswith("p-")
        while one.restarts < 1 or one._running.keys() != before.keys():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        while len({process.pid for process in one._running.values()} - set(before.values())) < 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert (one.killed, one.ended) == (1, 0)
    await one.stop(tasks)


async def until_all_run(one: RestartedProcesses) -> None:
    while len(one._running) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def test_frozen_process_is_continued_and_ended_with_the_run(tmp_path: Path) -> None:
    async def until(stopped: bool) -> None:
        while (state_of(process.pid) == "T") != stopped:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    one = processes(tmp_path, SLEEPER)
    tasks = one.tasks()
    async with asyncio.timeout(PATIENCE_S):
        await until_all_run(one)
        process = one._running[random.Random(0).choice(list(one._running))]
        freezing = asyncio.create_task(one.freeze(random.Random(0), 0.5))
        await until(stopped=True)
        assert (await freezing or "").endswith(f"(pid {process.pid}) for 0.5 s")
        await until(stopped=False)
        freezing = asyncio.create_task(one.freeze(random.Random(0), PATIENCE_S))
        await until(stopped=True)
        await one.stop(tasks)
    assert process.returncode == -signal.SIGTERM, "it was told to end, and woken so that it hears it"
    freezing.cancel()
    assert await one.freeze(random.Random(0), 0) is None
    assert one.kill(random.Random(0)) is None
