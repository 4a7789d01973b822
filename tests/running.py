"""Commands that run as a process during a test."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final

PYTEST: Final = (
    *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
    *("-p", "no:hypothesispytest", "-p", "no:anyio"),  # half of the time in which pytest starts
)
"""Runs the tests of another project."""


@contextlib.contextmanager
def running(*words: str, **options: Any) -> Iterator[dict[str, str]]:
    """Run a command, and stop it cleanly. Yields its ready line."""
    command = [sys.executable, "-m", "anabranch.cli.main", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("ready "), f"{words} wrote {line!r}"
            yield dict(word.split("=", 1) for word in line.split()[1:])
        finally:
            process.terminate()
            status = process.wait(60)
    assert status == 0, f"{words} ended with {status}"
