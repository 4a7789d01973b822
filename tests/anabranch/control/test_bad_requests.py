"""No mutated HTTP request causes a 500, a traceback, a blocked loop or growing memory.

`python -m tests.anabranch.control.hostile_http --cases 20000` sends more.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.anabranch.control.hostile_http import Target, run, targets

CASES = 160
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Target]]:
    with targets(tmp_path_factory.mktemp("hostile")) as found:
        yield found


@pytest.mark.parametrize("name", ["cluster", "proxy", "metrics"])
def test_mutated_request_is_answered_or_refused(served: dict[str, Target], name: str) -> None:
    assert run(served[name], CASES, seed=1) > CASES // 40, "some are answered, or nothing was tried"
