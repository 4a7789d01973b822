"""A Kafka endpoint in a container, for the tests of any project: a testcontainers class around `anabranch up`.

    with AnabranchContainer(brokers=3) as kafka:
        producer = confluent_kafka.Producer({"bootstrap.servers": kafka.get_bootstrap_server()})
        with kafka.faults(api="Produce", error="NOT_LEADER_OR_FOLLOWER", times=2):
            ...
        kafka.nodes[2].kill()
        kafka.wait_for(topic="orders", isr="1,3")

It has the methods of the fixture: its control plane has its own port, and needs a token that only this object has.

Kafka clients connect to advertised addresses, so a broker must know its published port. Ports are therefore chosen
before the container starts, and are the same inside and outside.

Needs the extra `testing` and the image: `docker build -t anabranch .`
"""

from __future__ import annotations

import contextlib
import random
import re
import secrets
import socket
from collections.abc import Iterator, Mapping
from typing import Any, Final

from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

from anabranch.control.client import ControlClient
from anabranch.protocol.host_port import format_host_port
from anabranch.testing.running_cluster import RunningCluster

READY: Final = re.compile(r"^ready bootstrap=(\S+) control=http://\S+:(\d+)$", re.MULTILINE)
TOKEN: Final = "ANABRANCH_CONTROL_TOKEN"
START_TIMEOUT_S: Final = 60
PORTS: Final = range(20_000, 32_000)  # below the ports that systems use for outgoing connections
TRIES: Final = 100
ANYWHERE: Final = "0.0.0.0"
LOCALHOST: Final = "127.0.0.1"


class AnabranchContainer(DockerContainer, RunningCluster):
    """Brokers in one container, ready when `start` returns.

    With `host_network` the container uses the host's network instead of published ports: for engines without a bridge.
    """

    def __init__(
        self,
        image: str = "anabranch",
        *,
        brokers: int = 1,
        properties: Mapping[str, str] | None = None,
        journal: int = 0,
        host_network: bool = False,
        **kwargs: Any,
    ) -> None:
        DockerContainer.__init__(self, image, **kwargs)
        RunningCluster.__init__(self, "")
        self._brokers = brokers
        self._properties = dict(properties or {})
        self._journal_size = journal
        self._host_network = host_network

    def start(self) -> AnabranchContainer:
        """Start the container and wait for its ready line. The error has the container's output."""
        first = adjacent_free_ports(self._brokers + 1)
        token = secrets.token_urlsafe()
        host = LOCALHOST
        if self._host_network:
            self._kwargs["network_mode"] = "host"
        else:
            host = self.get_docker_client().host()
            for port in range(first, first + self._brokers + 1):
                self.with_bind_ports(port, port)
        self.with_env(TOKEN, token)
        self.with_command(
            command(
                self._brokers,
                first,
                advertise="" if self._host_network else host,
                properties=self._properties,
                journal=self._journal_size,
            )
        )
        ready = LogMessageWaitStrategy(READY).with_startup_timeout(START_TIMEOUT_S).with_poll_interval(0.1)
        self.waiting_for(ready)
        super().start()
        self.bootstrap_servers, self._control = parse_ready_line(self.get_logs()[0].decode(), host, token)
        return self

    def get_bootstrap_server(self) -> str:
        """The brokers' addresses, for `bootstrap.servers` of any Kafka client."""
        return self.bootstrap_servers

    @contextlib.contextmanager
    def fork(self, snapshot: str = "") -> Iterator[RunningCluster]:
        """See RunningCluster. RuntimeError without `host_network`: a fork's ports are not published."""
        if not self._host_network:
            raise RuntimeError("the ports of a fork are not published by the container: use host_network=True")
        with super().fork(snapshot) as other:
            yield other


def command(
    brokers: int, first: int, *, advertise: str, properties: Mapping[str, str] | None = None, journal: int = 0
) -> list[str]:
    """The container's command line: brokers from the first port on, then the control plane.

    Args:
        brokers: The number of brokers.
        first: The first broker's port.
        advertise: The host by which clients reach the container; empty if it shares this machine's network.
        properties: Broker properties by their Kafka names.
        journal: The size of the journal, in exchanges.
    """
    words = ["up", "--brokers", str(brokers), "--port", str(first)]
    if advertise:
        words += ["--host", ANYWHERE, "--advertise", advertise]
    words += ["--control", f"{ANYWHERE if advertise else LOCALHOST}:{first + brokers}"]
    if journal:
        words += ["--control-journal", str(journal)]
    for name, value in (properties or {}).items():
        words += ["--config", f"{name}={value}"]
    return words


def parse_ready_line(written: str, host: str, token: str) -> tuple[str, ControlClient]:
    """Parse the ready line: the bootstrap servers, and a client for the control plane as reachable from here."""
    ready = READY.search(written)
    assert ready is not None, "the container has no ready line yet"
    return ready[1], ControlClient(f"http://{format_host_port(host, ready[2])}", token)


def adjacent_free_ports(count: int) -> int:
    """The first of `count` adjacent ports that no process listens on now."""
    chooser = random.Random()
    for _ in range(TRIES):
        first = chooser.choice(PORTS)
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("", port))
            return first
    raise OSError(f"no {count} adjacent free ports between {PORTS.start} and {PORTS.stop}")
