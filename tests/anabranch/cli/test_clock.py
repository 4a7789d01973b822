"""`anabranch clock` shows, advances and stops a cluster's clock, also from its start."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.anabranch.cli.conftest import Command
from tests.running import running


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running("up", "--brokers", "1", "--port", "0", "--control", "127.0.0.1:0", "--clock", "steps") as ready:
        yield ready["control"]


def test_clock_is_stopped_advanced_and_shown(url: str, anabranch: Command) -> None:
    def clock(*words: str) -> str:
        result = anabranch("clock", *words, "--control", url)
        assert result.exit_code == 0, result.output
        return result.output

    stands = clock("show")
    assert stands.endswith("+00:00  stands still\n") and clock("show") == stands
    assert clock("advance", "1d") == "" and clock("show")[:10] > stands[:10]
    clock("run", "--pace", "2.5")
    assert clock("show").endswith("  2.5x\n")
    assert json.loads(clock("show", "--json"))["pace"] == 2.5
    clock("stop")
    assert clock("show").endswith("stands still\n")
    refused = anabranch("clock", "advance", "soon", "--control", url)
    assert refused.exit_code == 1 and "such as 45s" in refused.output


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--clock", "fast", "--control", ":0"), "a clock runs at 1x, 10x or 0.5x, or in"),
        (("--clock", "steps"), "--clock steps needs --control, for `anabranch clock advance`"),
        (("--clock", "10x", "--processes", "--zookeeper", "local"), "--clock needs a cluster in one process"),
    ],
)
def test_invalid_clock_option_is_refused(words: tuple[str, ...], reason: str, anabranch: Command) -> None:
    result = anabranch("up", *words)
    assert (result.exit_code, reason in result.output) == (2, True), result.output
