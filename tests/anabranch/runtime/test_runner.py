"""Starting without collections must not become living without them; a process that hangs can be asked why."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
from typing import Any

from anabranch.runtime.runner import freeze_memory, postpone_collection
from anabranch.runtime.task_dump import END


def test_collections_run_again_once_memory_is_settled() -> None:
    frozen_before = gc.get_freeze_count()
    postpone_collection()
    try:
        assert not gc.isenabled()
        kept: list[list[Any]] = [[] for _ in range(1000)]
        freeze_memory()
        assert gc.isenabled()
        assert gc.get_freeze_count() >= frozen_before + len(kept)
    finally:
        gc.enable()
        if not frozen_before:
            gc.unfreeze()


WAITING = """
import asyncio
from anabranch.runtime.runner import run

async def asks() -> None:
    await asyncio.get_running_loop().run_in_executor(None, input)

async def main() -> None:
    print("up", flush=True)
    await asyncio.create_task(asks(), name="the one that asks")

run(main)
"""


def test_a_process_tells_on_request_what_its_tasks_wait_for_and_goes_on() -> None:
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", WAITING], text=True, **pipes) as process:
        assert process.stdout is not None and process.stdin is not None and process.stderr is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGQUIT)
        told: list[str] = []
        while not told or told[-1] not in (END + "\n", ""):
            told.append(process.stderr.readline())
        process.stdin.write("go on\n")
        process.stdin.flush()
        assert process.wait(timeout=600) == 0
    start = told.index("--- task the one that asks\n")
    assert told[start + 1].endswith(" asks\n")
