"""A small live cluster, and a way to give commands to it as a shell would."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from anabranch.cli.main import cli

Command = Callable[..., Result]


@contextlib.contextmanager
def cluster(brokers: int) -> Iterator[str]:
    """The bootstrap servers of a cluster in a process of its own."""
    words = [sys.executable, "-m", "anabranch.cli.main", "up", "--brokers", str(brokers), "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("ready bootstrap=")
            yield line.strip().partition("=")[2]
        finally:
            process.terminate()
            process.wait(60)


@pytest.fixture(scope="package")
def servers() -> Iterator[str]:
    with cluster(1) as bootstrap_servers:
        yield bootstrap_servers


def healthy(anabranch: Command, *words: str) -> Result:
    """What `anabranch health` says in the end: asked again for a minute, as by whoever looks after a server."""
    deadline_s = time.monotonic() + 60
    while True:
        result = anabranch("health", *words)
        if result.exit_code == 0 or time.monotonic() > deadline_s:
            return result


@pytest.fixture
def anabranch() -> Command:
    return lambda *words: CliRunner().invoke(cli, list(words))
