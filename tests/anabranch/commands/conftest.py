"""A small live cluster, and a way to give commands to it as a shell would."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from anabranch.main import cli

Command = Callable[..., Result]


@pytest.fixture(scope="package")
def servers() -> Iterator[str]:
    words = [sys.executable, "-m", "anabranch.main", "up", "--brokers", "1", "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("ready bootstrap=")
            yield line.strip().partition("=")[2]
        finally:
            process.terminate()
            process.wait(60)


@pytest.fixture
def anabranch() -> Command:
    return lambda *words: CliRunner().invoke(cli, list(words))
