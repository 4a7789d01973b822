"""Runs the few tests that failed beside others once more, alone: `make again`, which `.ci/run` uses after `make test`.

A test that fails again has failed. A test that passes alone is named as flaky: it is a bug of the product or of the
test, and is to be explained. Nothing is run again after more than `FLAKY_MAX` failures, or after a run that did not
come to its end.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

CACHE: Final = Path(__file__).parents[1] / ".pytest_cache/v"
LAST_FAILED: Final = CACHE / "cache/lastfailed"
EXIT_STATUS: Final = "anabranch/exit_status"
"""The key in pytest's cache of the last run's exit status."""
TESTS_FAILED: Final = 1
FLAKY_MAX: Final = 3


def second_run(status: int, failed: Sequence[str], run: Callable[[Sequence[str]], int]) -> tuple[int, str]:
    """Run failed tests again.

    Args:
        status: pytest's exit status of the whole run; -1 if it has not run.
        failed: The node ids of the tests that failed.
        run: Runs these tests, and returns pytest's exit status.

    Returns:
        The exit status, and the line to print.
    """
    if status != TESTS_FAILED or not failed:
        return 1, f"NOTHING IS RUN AGAIN: another step failed, or the run ended early (pytest's exit status {status})"
    names = "\n  ".join(failed)
    if len(failed) > FLAKY_MAX:
        return 1, f"NOTHING IS RUN AGAIN: {len(failed)} tests failed, more than {FLAKY_MAX}:\n  {names}"
    if run(failed):
        return 1, f"FAILED TWICE, beside other tests and alone:\n  {names}"
    return 0, f"FLAKY: FAILED BESIDE OTHER TESTS, PASSED ALONE. Explain and mend:\n  {names}"


def main() -> int:
    """Run the tests that pytest noted as failed; returns the exit status."""
    noted = CACHE / EXIT_STATUS
    whole_run = json.loads(noted.read_text()) if noted.exists() else -1
    failed = sorted(json.loads(LAST_FAILED.read_text())) if LAST_FAILED.exists() else []
    status, line = second_run(
        whole_run,
        failed,
        lambda names: subprocess.run([sys.executable, "-m", "pytest", *names], check=False).returncode,
    )
    sys.stdout.write(f"{line}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
