"""Groups tests for the workers of pytest-xdist: tests with shared resources, or tests that wait.

All others go wherever there is room, one by one. Groups go first, the largest at the head. The simulation keeps
processors busy, and two processes of its own: by itself it leaves room for tests that wait. The marks of
`--dist loadgroup` do nothing with pytest 9.2, which does not look where pytest-xdist 3.8 writes them.
"""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadScopeScheduling

TOGETHER: Final = {
    "tests/spark_jobs/": "one Spark",
    "tests/anabranch/cli/test_audit.py": "one Spark",  # at a time
    "tests/test_package.py": "one Spark",
    "tests/dashboard/": "one browser",
    "tests/chaos/test_kip_903.py": "chaos",
    "tests/chaos/test_main.py": "chaos",
    "tests/chaos/test_marathon.py": "chaos",
    "tests/chaos/test_run.py": "chaos",
    "tests/sim/": "simulation",
}


def group_of(nodeid: str) -> str:
    """What a test is to be together with; by itself, if with none."""
    return next((group for prefix, group in TOGETHER.items() if nodeid.startswith(prefix)), nodeid)


class Grouped(LoadScopeScheduling):  # type: ignore[misc]
    """A scope is a group (`_split_scope` is what pytest-xdist's own schedulers differ by)."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
