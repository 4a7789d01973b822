"""The cost of TLS and logins for a broker: handshakes per second, and bytes per listener, compared with Kafka.

One broker of each kind runs in its own process, with the same listeners, certificates, users and clients. Logins run
eight at a time, each on a new connection, up to the response to the first request; records of 1 KiB go through
librdkafka. Rounds alternate. The broker's processor time is more reliable than the rates, because the clients share the
machine. Kafka takes part where its jars are: ANABRANCH_KAFKA_JARS, as in tests/differential/kafka_server.py.

    python -m benchmarks.security [--logins 400] [--rounds 3]
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from anabranch import Admin
from anabranch.clients.certificates import CertificateAuthority
from anabranch.clients.connection import Connection
from anabranch.clients.security_config import make_security
from anabranch.runtime.sockets import free_ports
from benchmarks.peers import running
from benchmarks.report import Figure, median, run_benchmark, table, times, working
from benchmarks.throughput import RECORD, RECORDS, consumed_per_s, create_topic, produced_per_s
from tests.differential.kafka_server import KafkaCluster, why_absent

LOGINS: Final = 400
ROUNDS: Final = 3
PASSES: Final = 45
"""How often the records of a topic are read; they are written a fifth as often."""
AT_ONCE: Final = 8
USER: Final = "alice"
PASSWORD: Final = "of a benchmark"
MODULES: Final = "org.apache.kafka.common.security"
TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
WAYS: Final = (
    *(("PLAINTEXT", ""), ("SSL", "")),
    *(("SASL_PLAINTEXT", mechanism) for mechanism in MECHANISMS),
    ("SASL_SSL", "SCRAM-SHA-256"),
)
"""Listener protocol and SASL mechanism."""
CARRIED: Final = ("PLAINTEXT", "SSL")
"""The protocols measured with records: the login has no effect on them."""


@dataclass(frozen=True, slots=True)
class Broker:
    """A running broker of either kind."""

    name: str
    pid: int
    ports: Mapping[str, int]
    ca: Path

    def processor_s(self) -> float:
        """Processor seconds, including ended threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * TICK_S

    def librdkafka(self, protocol: str) -> dict[str, Any]:
        """librdkafka's settings for a listener without a login."""
        return {"security.protocol": protocol, **({"ssl.ca.location": str(self.ca)} if protocol == "SSL" else {})}


@dataclass(frozen=True, slots=True)
class Cost:
    """A rate, and the broker's processor time per unit."""

    per_s: float
    processor_s: float


def properties_of(directory: Path) -> dict[str, str]:
    """The properties of both brokers, by Kafka's names; writes the certificates."""
    authority = CertificateAuthority()
    issued = authority.issue([("CN", "broker")], ["localhost", "127.0.0.1"])
    (directory / "ca.pem").write_bytes(authority.certificate)
    (directory / "broker.pem").write_bytes(issued.key + issued.certificate + issued.chain)
    found = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "offsets.topic.replication.factor": "1",
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        found[f"listener.name.{listener}.plain.sasl.jaas.config"] = (
            f'{MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        )
        for mechanism in MECHANISMS[1:]:
            name = f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"
            found[name] = f"{MODULES}.scram.ScramLoginModule required;"
    return found


@asynccontextmanager
async def brokers(directory: Path) -> AsyncIterator[list[Broker]]:
    """Run this package's broker, and Kafka's if possible, with a user."""
    properties, ca = properties_of(directory), directory / "ca.pem"
    protocols = list(dict.fromkeys(protocol for protocol, _ in WAYS))
    found = []
    async with AsyncExitStack() as stack:
        ports = dict(zip(protocols, free_ports("127.0.0.1", len(protocols)), strict=True))
        file = directory / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        options = ["--brokers", "1", "--config-file", str(file)]
        for protocol, port in ports.items():
            options += ["--listener", f"{protocol}://127.0.0.1:{port}"]
        ours = stack.enter_context(running("anabranch", *options))
        found.append(Broker("anabranch", ours.process.pid, ports, ca))
        if why_absent() is None:
            ports = dict(zip(protocols[1:], free_ports("127.0.0.1", len(protocols) - 1), strict=True))
            listeners = [f"{protocol}://127.0.0.1:{port}" for protocol, port in ports.items()]
            # Like Kafka's own scripts, with the optimizing compiler enabled.
            options = ["-Xmx1G", "-Xms1G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
            kafka = KafkaCluster(properties=properties, listeners=listeners, jvm_options=options)
            await stack.enter_async_context(kafka)
            ports["PLAINTEXT"] = kafka.addresses[1][1]
            found.append(Broker("kafka", kafka.pids[1], ports, ca))
        for one in found:
            async with Admin(f"127.0.0.1:{one.ports['PLAINTEXT']}") as admin:
                await admin.set_password(USER, PASSWORD, mechanisms=MECHANISMS[1:])
        yield found


async def logins(broker: Broker, protocol: str, mechanism: str, count: int) -> Cost:
    """Connect and log in `count` times, eight at a time; returns the cost of one."""
    given: dict[str, Any] = {"security_protocol": protocol}
    if protocol.endswith("SSL"):
        given["ssl_cafile"] = str(broker.ca)
    if mechanism:
        given |= {"sasl_mechanism": mechanism, "sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
    security = make_security(**given)
    left = iter(range(count))

    async def one_after_another() -> None:
        for _ in left:
            connection = await Connection.open(
                "127.0.0.1", broker.ports[protocol], client_id="benchmark", security=security
            )
            await connection.close()

    start_s, processor_s = time.perf_counter(), broker.processor_s()
    await asyncio.gather(*(one_after_another() for _ in range(AT_ONCE)))
    return Cost(count / (time.perf_counter() - start_s), (broker.processor_s() - processor_s) / count)


def carried(broker: Broker, protocol: str, passes: int) -> dict[str, Cost]:
    """Records per second through a listener, in both directions, and processor time per GB."""
    bootstrap, settings = f"127.0.0.1:{broker.ports[protocol]}", broker.librdkafka(protocol)
    topic = f"through-{protocol.lower()}"
    create_topic(f"127.0.0.1:{broker.ports['PLAINTEXT']}", topic, replicas=1)
    ways: dict[str, tuple[int, Callable[[int], list[float]]]] = {
        "produce": (-(-passes // 5), lambda count: produced_per_s(bootstrap, topic, "1", count, settings)),
        "consume": (passes, lambda count: consumed_per_s(bootstrap, topic, count, settings)),
    }
    found = {}
    for what, (count, move) in ways.items():
        move(count)  # Kafka compiles code that runs often
        processor_s = broker.processor_s()
        rate = median(move(count))
        gigabytes = (count + 1) * RECORDS * len(RECORD) / 1e9
        found[what] = Cost(rate, (broker.processor_s() - processor_s) / gigabytes)
    return found


async def costs(count: int, rounds: int, passes: int, status: Any) -> dict[str, dict[str, Cost]]:
    """The measured costs: row -> broker -> cost."""
    found: dict[str, dict[str, Cost]] = {}
    with tempfile.TemporaryDirectory(prefix="benchmark-") as directory:
        async with brokers(Path(directory)) as both:
            for protocol, mechanism in WAYS:
                what = f"login, {protocol}{' ' if mechanism else ''}{mechanism}"
                taken: dict[str, list[Cost]] = {one.name: [] for one in both}
                for number in range(rounds + 1):
                    for one in both:
                        status.update(f"security: {what}, {one.name}")
                        cost = await logins(one, protocol, mechanism, count)
                        if number:  # the first round warms up
                            taken[one.name].append(cost)
                found[what] = {name: _middle(several) for name, several in taken.items()}
            for protocol in CARRIED:
                for one in both:
                    status.update(f"security: records through {protocol}, {one.name}")
                    for way, cost in carried(one, protocol, passes).items():
                        found.setdefault(f"{way}, {protocol}", {})[one.name] = cost
    return found


def _middle(several: list[Cost]) -> Cost:
    return Cost(median(one.per_s for one in several), median(one.processor_s for one in several))


def measure(logins: int = LOGINS, rounds: int = ROUNDS, passes: int = PASSES) -> list[Figure]:
    with working("security") as status:
        found = asyncio.run(costs(logins, rounds, passes, status))
    rows, figures = [], []
    for what, of in found.items():
        own, kafka = of["anabranch"], of.get("kafka")
        unit, factor = ("ms", 1000) if what.startswith("login") else ("s/GB", 1)
        cells = [f"{own.per_s:,.0f}", f"{own.processor_s * factor:.2f} {unit}"]
        peer = "none here: set ANABRANCH_KAFKA_JARS"
        if kafka is None:
            rows.append((what, *cells, "-", "-", "-"))
        else:
            theirs = f"{kafka.processor_s * factor:.2f} {unit}"
            rows.append((what, *cells, f"{kafka.per_s:,.0f}", theirs, times(own.processor_s, kafka.processor_s)))
            peer = f"Kafka {kafka.per_s:,.0f}/s, {theirs} ({times(own.processor_s, kafka.processor_s)})"
        figures.append(Figure(what, "shown", f"{cells[0]}/s, {cells[1]}", peer))
    table(
        f"{logins} logins, {AT_ONCE} at a time, and records of {len(RECORD)} bytes; medians of {rounds} rounds",
        *("", "per second", "processor", "Kafka's", "processor", "ratio"),
        rows=rows,
        note="a row's ratio is that of processor time; the clients take their part of the same cores",
    )
    return figures


def main(arguments: list[str] | None = None) -> int:
    return run_benchmark(__doc__, measure, arguments, logins=(LOGINS, "in a round"), rounds=(ROUNDS, "measured rounds"))


if __name__ == "__main__":
    sys.exit(main())
