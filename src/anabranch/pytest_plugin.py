"""Pytest fixture `anabranch_cluster`: a live Kafka endpoint for the tests of any project, with any client.

The cluster is `anabranch up` in a process of its own, started once per test session and ready in well under a second.

    def test_orders(anabranch_cluster):
        producer = confluent_kafka.Producer({"bootstrap.servers": anabranch_cluster.bootstrap_servers})

In pytest.ini: `anabranch_brokers = 3`, and `anabranch_properties` with one broker property per line.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

STOP_TIMEOUT_S = 10


@dataclass(frozen=True)
class RunningCluster:
    """The cluster behind the fixture `anabranch_cluster`."""

    bootstrap_servers: str
    """Its brokers as "HOST:PORT,HOST:PORT": what any Kafka client is given."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the two settings of pytest.ini; pytest calls it."""
    parser.addini("anabranch_brokers", "brokers of the cluster behind the fixture anabranch_cluster", default="1")
    parser.addini("anabranch_properties", "their properties, one NAME=VALUE per line", type="linelist", default=[])


@pytest.fixture(scope="session")
def anabranch_cluster(request: pytest.FixtureRequest) -> Iterator[RunningCluster]:
    """A running cluster, started at the first test that asks for it and stopped at the end of the session.

    Its size and properties are the settings `anabranch_brokers` (1 if not set) and `anabranch_properties`.

    Returns:
        The cluster, with `bootstrap_servers` for any Kafka client.

    Raises:
        pytest.fail.Exception: The cluster did not start; its own words are on the standard error output.
    """
    words = [sys.executable, "-m", "anabranch.main", "up", "--port", "0"]
    words += ["--brokers", str(request.config.getini("anabranch_brokers"))]
    for line in request.config.getini("anabranch_properties"):
        words += ["--config", line]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            head, _, servers = process.stdout.readline().strip().partition("bootstrap=")
            if head.strip() != "ready":
                pytest.fail(f"the cluster did not start: {' '.join(words)}", pytrace=False)
            yield RunningCluster(servers)
        finally:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
