"""The garbage collector is off only during the start, and never visits all objects; SIGQUIT dumps the tasks."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from anabranch.runtime.runner import FROZEN_GENERATION, freeze_memory, postpone_collection
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


MANY_OBJECTS = """
import gc
from anabranch.runtime.runner import freezing_survivors

def full_collections():
    return gc.get_stats()[2]["collections"]

before, thresholds = full_collections(), gc.get_threshold()
with freezing_survivors():
    objects = [[] for _ in range(300_000)]
    print(full_collections() - before, gc.get_freeze_count() > 250_000)
print(gc.get_threshold() == thresholds)
"""


@pytest.mark.skipif(
    FROZEN_GENERATION > 1,
    reason="PYTHON 3.14: objects are frozen after a full collection only, so that one happens; this was NOT checked",
)
def test_many_new_objects_cause_no_full_collection() -> None:
    """In its own process, because it freezes objects."""
    done = subprocess.run([sys.executable, "-c", MANY_OBJECTS], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.split() == ["0", "True", "True"]


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


def test_signal_dumps_tasks_and_process_continues() -> None:
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", WAITING], text=True, **pipes) as process:
        assert process.stdout is not None and process.stdin is not None and process.stderr is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGQUIT)
        reported: list[str] = []
        while not reported or reported[-1] not in (END + "\n", ""):
            reported.append(process.stderr.readline())
        process.stdin.write("go on\n")
        process.stdin.flush()
        assert process.wait(timeout=600) == 0
    start = reported.index("--- task the one that asks\n")
    assert reported[start + 1].endswith(" asks\n")


UP = [sys.executable, "-m", "anabranch.cli.main", "up", "--brokers", "2", "--port", "0", "--log-level", "info"]
UNREACHABLE = [*UP, "--advertise", "127.0.0.2"]
"""Brokers listen on 127.0.0.1, so they never reach each other, and the start does not end by itself for a minute."""
SOON_S = 20
"""Far less than that minute, on a loaded machine too."""


@pytest.mark.parametrize(
    ("host", "reason", "remedy"),
    [
        ("kafka.invalid", "brokers cannot connect to kafka.invalid (", "write --advertise with a name"),
        ("kafka..example", "--advertise: 'kafka..example' has a name with an empty part", "write HOST:PORT"),
    ],
)
def test_unresolvable_advertised_host_is_named_with_remedy(host: str, reason: str, remedy: str) -> None:
    done = subprocess.run([*UP, "--advertise", host], capture_output=True, text=True, timeout=SOON_S)
    assert done.returncode == 2
    assert reason in done.stderr
    assert remedy in done.stderr
    assert "ready" not in done.stdout


def test_signal_while_brokers_cannot_connect_ends_the_start() -> None:
    with subprocess.Popen(UNREACHABLE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any("cannot connect to 127.0.0.2" in line for line in process.stderr)
        process.send_signal(signal.SIGTERM)
        rest, trouble = process.communicate(timeout=SOON_S)
    assert process.returncode == 0
    assert "ready" not in rest
    assert "Traceback" not in trouble


@pytest.mark.parametrize("after_s", [0.1, 0.3, 0.6, 1.2])
def test_signal_at_any_time_of_start_ends_it(after_s: float) -> None:
    with subprocess.Popen(UNREACHABLE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(after_s)  # the moment is what is tried
        process.send_signal(signal.SIGTERM)
        _, trouble = process.communicate(timeout=SOON_S)
    assert process.returncode in (0, -signal.SIGTERM)
    assert "Traceback" not in trouble
