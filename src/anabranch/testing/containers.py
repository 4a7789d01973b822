"""A Kafka endpoint in a container, for the tests of any project: a testcontainers class around `anabranch up`.

    with AnabranchContainer(brokers=3) as kafka:
        producer = confluent_kafka.Producer({"bootstrap.servers": kafka.get_bootstrap_server()})

Kafka clients connect to the addresses that brokers tell them, so a broker must know the port under which it is reached
from outside. Ports are therefore chosen before the container starts, and are the same inside and outside.

Needs the extra `testing` and the image: `docker build -t anabranch .`
"""

from __future__ import annotations

import contextlib
import random
import re
import socket
from collections.abc import Mapping
from typing import Any, Final

from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

READY: Final = re.compile(r"^ready bootstrap=(\S+)$", re.MULTILINE)
START_TIMEOUT_S: Final = 60
PORTS: Final = range(20_000, 32_000)  # below the ports that systems hand out to clients
TRIES: Final = 100


class AnabranchContainer(DockerContainer):
    """Brokers in one container, ready when `start` returns.

    With `host_network` the container uses the host's network instead of published ports: for engines without a bridge.
    """

    def __init__(
        self,
        image: str = "anabranch",
        *,
        brokers: int = 1,
        properties: Mapping[str, str] | None = None,
        host_network: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(image, **kwargs)
        self._brokers = brokers
        self._properties = dict(properties or {})
        self._host_network = host_network

    def start(self) -> AnabranchContainer:
        """Start the container and wait for its ready line. Without one, the error has what the container wrote."""
        first = adjacent_free_ports(self._brokers)
        command = ["up", "--brokers", str(self._brokers), "--port", str(first)]
        if self._host_network:
            self._kwargs["network_mode"] = "host"
        else:
            command += ["--host", "0.0.0.0", "--advertise", self.get_docker_client().host()]
            for port in range(first, first + self._brokers):
                self.with_bind_ports(port, port)
        for name, value in self._properties.items():
            command += ["--config", f"{name}={value}"]
        self.with_command(command)
        ready = LogMessageWaitStrategy(READY).with_startup_timeout(START_TIMEOUT_S).with_poll_interval(0.1)
        self.waiting_for(ready)
        super().start()
        return self

    def get_bootstrap_server(self) -> str:
        """The brokers' addresses, for `bootstrap.servers` of any Kafka client."""
        written = READY.search(self.get_logs()[0].decode())
        assert written is not None, "the container has not said that it is ready"
        return written[1]


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
