"""A small live cluster, and a fixture that runs commands like a shell."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from anabranch.cli.main import cli
from tests.running import running

Command = Callable[..., Result]


@contextlib.contextmanager
def cluster(brokers: int) -> Iterator[str]:
    """The bootstrap servers of a cluster in a process of its own."""
    with running("up", "--brokers", str(brokers), "--port", "0") as ready:
        yield ready["bootstrap"]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The control plane of a cluster."""
    with running("up", "--port", "0", "--control", "127.0.0.1:0") as ready:
        yield ready["control"]


@pytest.fixture(scope="package")
def servers() -> Iterator[str]:
    with cluster(1) as bootstrap_servers:
        yield bootstrap_servers


def healthy(anabranch: Command, *words: str) -> Result:
    """The last output of `anabranch health`, which is retried for a minute."""
    deadline_s = time.monotonic() + 60
    while True:
        result = anabranch("health", *words)
        if result.exit_code == 0 or time.monotonic() > deadline_s:
            return result


@pytest.fixture
def anabranch() -> Command:
    return lambda *words: CliRunner().invoke(cli, list(words))
