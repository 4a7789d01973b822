"""Pytest fixture `anabranch_cluster`: a live Kafka endpoint for the tests of any project, with any client.

The cluster is `anabranch up` in a process of its own, started once per test session and ready in well under a second.

    def test_orders(anabranch_cluster):
        producer = confluent_kafka.Producer({"bootstrap.servers": anabranch_cluster.bootstrap_servers})

Where the extra `control` is installed, a test may break the cluster, and wait for what it needs:

    def test_failover(anabranch_cluster):
        topic = anabranch_cluster.topic(partitions=3)
        with anabranch_cluster.nodes[2].killed():
            anabranch_cluster.wait_for(topic=topic, isr="1,3")

Rules fail, hold, delay or damage what its brokers answer, for a block or for a test; one that hits nothing fails it:

    @pytest.mark.anabranch(rules=[{"api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}])
    def test_retries(anabranch_cluster):
        ...
        with anabranch_cluster.faults(api="Fetch", delay_ms=500) as rule:
            ...

Tests share the cluster: give each its own topics, and leave it whole.

In pytest.ini: `anabranch_brokers = 3`, `anabranch_journal = 1000`, and `anabranch_properties` with one broker property
per line.
"""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import sys
import uuid
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from anabranch.control.client import ControlClient, NodeControl
    from anabranch.control.fault_client import FaultsClient
    from anabranch.control.journal_client import JournalClient

STOP_TIMEOUT_S = 10


class RunningCluster:
    """The cluster behind the fixture `anabranch_cluster`."""

    def __init__(self, bootstrap_servers: str, control: ControlClient | None = None) -> None:
        self.bootstrap_servers = bootstrap_servers
        """Its brokers as "HOST:PORT,HOST:PORT": what any Kafka client is given."""
        self._control = control

    @property
    def control(self) -> ControlClient:
        """All that may be done to it, and asked of it.

        Raises:
            RuntimeError: The extra `control` is not installed.
        """
        if self._control is None:
            raise RuntimeError("to control the cluster: pip install 'anabranch[control]'")
        return self._control

    @property
    def nodes(self) -> Mapping[int, NodeControl]:
        """Its nodes by id: `nodes[2].kill()`, `nodes[2].start()`, `nodes[2].expire_session()`."""
        return self.control.nodes

    @property
    def faults(self) -> FaultsClient:
        """Its rules: `faults.add(api="Produce", error="REQUEST_TIMED_OUT", times=2)`, or a `with` block."""
        return self.control.faults

    @property
    def journal(self) -> JournalClient:
        """Its last exchanges, if `anabranch_journal` is set: `journal.count(api="OffsetCommit", group="billing")`."""
        return self.control.journal

    def topic(self, name: str = "", partitions: int = 1, **configs: str) -> str:
        """Create a topic, and return its name when it can be used.

        Args:
            name: Its name; a new one if empty.
            partitions: How many it begins with.
            **configs: Settings by their Kafka names, with _ for dots.

        Returns:
            The topic's name.
        """
        name = name or f"topic-{uuid.uuid1()}"
        self.control.create_topic(name, partitions, configs=configs)
        return name

    def wait_for(self, *, timeout_s: float = 30.0, **condition: object) -> None:
        """Wait until a condition holds, such as topic="orders", partition=0, leader=2: see `ControlClient.wait_for`."""
        self.control.wait_for(timeout_s=timeout_s, **condition)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the settings of pytest.ini; pytest calls it."""
    parser.addini("anabranch_brokers", "brokers of the cluster behind the fixture anabranch_cluster", default="1")
    parser.addini("anabranch_journal", "how many exchanges its journal keeps", default="0")
    parser.addini("anabranch_properties", "their properties, one NAME=VALUE per line", type="linelist", default=[])


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker; pytest calls it."""
    config.addinivalue_line("markers", "anabranch(rules): rules of faults that anabranch_cluster follows in this test")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Have the cluster follow the rules of a test that has some; pytest calls it."""
    marker = item.get_closest_marker("anabranch")
    if marker is None:
        return (yield)
    cluster = getattr(item, "funcargs", {}).get("anabranch_cluster")
    if cluster is None:
        pytest.fail("@pytest.mark.anabranch is for tests that ask for anabranch_cluster", pytrace=False)
    with contextlib.ExitStack() as stack:
        for rule in marker.kwargs.get("rules", ()):
            said = dict(rule) if isinstance(rule, Mapping) else {"rule": rule}
            stack.enter_context(cluster.faults(**said))
        return (yield)


@pytest.fixture(scope="session")
def anabranch_cluster(request: pytest.FixtureRequest) -> Iterator[RunningCluster]:
    """A running cluster, started at the first test that asks for it and stopped at the end of the session.

    Its size and properties are the settings `anabranch_brokers` (1 if not set) and `anabranch_properties`; it keeps a
    journal of `anabranch_journal` exchanges.

    Returns:
        The cluster, with `bootstrap_servers` for any Kafka client.

    Raises:
        pytest.fail.Exception: The cluster did not start; its own words are on the standard error output.
    """
    words = [sys.executable, "-m", "anabranch.main", "up", "--port", "0"]
    words += ["--brokers", str(request.config.getini("anabranch_brokers"))]
    for line in request.config.getini("anabranch_properties"):
        words += ["--config", line]
    if controllable := importlib.util.find_spec("aiohttp") is not None:
        words += ["--control", "127.0.0.1:0", "--control-journal", str(request.config.getini("anabranch_journal"))]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            head, *told = process.stdout.readline().split()
            if head != "ready":
                pytest.fail(f"the cluster did not start: {' '.join(words)}", pytrace=False)
            known = dict(one.split("=", 1) for one in told)
            yield RunningCluster(known["bootstrap"], _client(known["control"]) if controllable else None)
        finally:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _client(url: str) -> ControlClient:
    from anabranch.control.client import ControlClient

    return ControlClient(url)
