"""No mutated HTTP request causes a 500, a traceback, a blocked loop or growing memory.

`python -m tests.anabranch.control.hostile_http --cases 20000` sends more.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.anabranch.control.hostile_http import Target, application, nodes, run, targets

CASES = 160
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Target]]:
    with targets(tmp_path_factory.mktemp("hostile")) as found:
        yield found


@pytest.mark.parametrize(("name", "cases"), [("cluster", CASES), ("proxy", CASES), ("metrics", CASES // 4)])
def test_mutated_request_is_answered_or_refused(served: dict[str, Target], name: str, cases: int) -> None:
    assert run(served[name], cases, seed=1) > cases // 40, "some are answered, or nothing was tried"


def test_mutated_request_to_a_streams_instance_is_answered_or_refused(tmp_path: Path) -> None:
    with application(tmp_path) as target:
        assert run(target, 2 * CASES, seed=1) > CASES // 6


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Target]]:
    with nodes(tmp_path_factory.mktemp("processes")) as found:
        yield found


@pytest.mark.processes
@pytest.mark.parametrize("name", ["front", "agent"])
def test_mutated_request_to_processes_is_answered_or_refused(processes: dict[str, Target], name: str) -> None:
    assert run(processes[name], CASES, seed=1) > CASES // 40
