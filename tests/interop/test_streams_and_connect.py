"""Kafka Streams and Connect on a growing topic with gates for stock consumers.

Streams and Connect divide work by data of their own, which must be left alone: an application that counts words and a
cluster of Connect go on. A sink of Connect reads as an ordinary classic group, and is given order. The jars are not
part of this project: point ANABRANCH_KAFKA_4_JARS at a directory that Maven has filled:

    mvn dependency:copy-dependencies -DoutputDirectory=...    # of a project that depends on kafka-streams and
                                                              # connect-file 4.x, with connect-runtime
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from anabranch import Admin, Consumer, Producer
from anabranch.spark_jobs import java

VARIABLE: Final = "ANABRANCH_KAFKA_4_JARS"
DIRECTORY: Final = os.environ.get(VARIABLE, "")
KEYS: Final = 20
ROUNDS: Final = (50, 50, 50)
"""Records of each key, while there are 2, 4 and 8 partitions."""
PATIENCE_S: Final = 90.0
QUIET: Final = "-Dlog4j2.level=OFF"
"""Where log4j is among the jars it would write into the lines of the program."""
GATED: Final = {"reshard.legacy.consumers": "gate"}

pytestmark = [pytest.mark.interop, pytest.mark.kafka_jars, pytest.mark.anabranch(brokers=3, kafka="4.1")]


class Program:
    """A Java program and the lines that it writes."""

    def __init__(self, *words: str | Path) -> None:
        command = [java.find(module=java.COMPILER).command, "-Xmx512m", "-XX:TieredStopAtLevel=1", QUIET]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen([*command, "-cp", f"{DIRECTORY}/*", *words], text=True, **pipes)
        self.lines: list[str] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(line.rstrip("\n") for line in self.process.stdout)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition of any process."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.process.poll() is None, (what, self.lines[-20:])
            assert time.monotonic() < deadline_s, (what, self.lines[-20:])
            time.sleep(0.05)

    def end(self) -> None:
        """Close its input, and wait for its last line."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)
        self.reader.join(PATIENCE_S)


@contextlib.contextmanager
def running(jar: str, *words: str | Path) -> Iterator[Program]:
    if not DIRECTORY or not list(Path(DIRECTORY).glob(f"{jar}-4.*.jar")) or java.why_missing(module=java.COMPILER):
        pytest.skip(f"NOT TRIED WITH {jar.upper()}: {VARIABLE}={DIRECTORY!r} has no {jar} 4.x, or there is no JDK")
    program = Program(*words)
    with program.process:  # closes its pipes
        try:
            yield program
        finally:
            program.process.kill()
            program.reader.join(PATIENCE_S)


async def send(servers: str, topic: str, number: int) -> None:
    first = sum(ROUNDS[:number])
    async with Producer(bootstrap_servers=servers) as producer:
        for sequence in range(first, first + ROUNDS[number]):
            for key in range(KEYS):
                await producer.send(topic, f"key-{key} {sequence}".encode(), b"key-%d" % key)
        await producer.flush()


async def grow(servers: str, topic: str, count: int) -> None:
    async with Admin(servers) as admin:
        await admin.create_partitions(topic, count)


async def counted(servers: str, topic: str, wanted: dict[str, int]) -> dict[str, int]:
    """The last count of each key, once all are what is wanted, or nothing more comes."""
    counts: dict[str, int] = {}
    async with Consumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                while counts != wanted:
                    for records in (await consumer.getmany(timeout_ms=200)).values():
                        counts |= {(one.key or b"").decode(): int(one.value or b"") for one in records}
    return counts


def output_of(app: Program) -> list[str]:
    """Its output without library logs."""
    return [line for line in list(app.lines) if line.startswith(("running", "died", "state "))]


def test_streams_application_that_counts_words_continues_through_resize(anabranch: Any) -> None:
    """Its assignment data is the leader's: a withheld partition would end its threads."""
    servers = anabranch.bootstrap_servers
    topic, output = anabranch.topic("lines", partitions=2, **GATED), anabranch.topic("counts", partitions=1)
    wanted: Counter[str] = Counter()
    program = Path(__file__).with_name("GrowingWordCount.java")
    with running("kafka-streams", program, servers, topic, output, "repartitioned") as app:
        for number, count in enumerate((2, 4, 8)):
            if number:
                asyncio.run(grow(servers, topic, count))
            else:
                app.until(lambda: "running" in output_of(app), "both instances run")
            asyncio.run(send(servers, topic, number))
            first = sum(ROUNDS[:number])
            wanted.update({f"key-{key}": ROUNDS[number] for key in range(KEYS)})
            wanted.update({str(one): KEYS for one in range(first, first + ROUNDS[number])})
        counts = asyncio.run(counted(servers, output, wanted))
        app.end()
    assert counts == wanted, app.lines
    assert output_of(app) == ["running", "state RUNNING", "state RUNNING"]


def test_streams_application_that_counts_source_keys_ends_as_with_kafka(anabranch: Any) -> None:
    """A key's state would stay in the old partition: Streams checks the partition counts, and ends."""
    servers = anabranch.bootstrap_servers
    topic, output = anabranch.topic("lines", partitions=2, **GATED), anabranch.topic("counts", partitions=1)
    program = Path(__file__).with_name("GrowingWordCount.java")
    with running("kafka-streams", program, servers, topic, output, "direct") as app:
        app.until(lambda: "running" in output_of(app), "both instances run")
        asyncio.run(send(servers, topic, 0))
        asyncio.run(grow(servers, topic, 4))
        app.until(lambda: any(line.startswith("died") for line in output_of(app)), "it ends")
    assert "invalid partitions: expected: 4; actual: 2" in " ".join(output_of(app))


@pytest.mark.parametrize(("policy", "begins"), [("gate", 0), ("gate", 2), ("ignore", 2)])
def test_connect_continues_and_its_sinks_keep_key_order(
    anabranch: Any, policy: str, begins: int, tmp_path: Path
) -> None:
    """The sink starts during or after the growth. With `ignore` it delivers children before parents."""
    servers = anabranch.bootstrap_servers
    topic = anabranch.topic("lines", partitions=2, **{"reshard.legacy.consumers": policy})
    with socket.create_server(("127.0.0.1", 0)) as free:
        rest = f"http://127.0.0.1:{free.getsockname()[1]}"
    settings, file = tmp_path / "connect.properties", tmp_path / "sunk"
    settings.write_text(WORKER.format(servers=servers, rest=rest))
    file.touch()
    sink = {**SINK, "topics": topic, "file": str(file)}
    with running("connect-file", "org.apache.kafka.connect.cli.ConnectDistributed", settings) as worker:
        worker.until(lambda: call_worker(rest, "/connectors") == [], "the worker is a member of its group")
        for number, count in enumerate((2, 4, 8)):
            if number:
                asyncio.run(grow(servers, topic, count))
            asyncio.run(send(servers, topic, number))
            if number == begins:
                worker.until(lambda: call_worker(rest, "/connectors/sink/config", sink) is not None, "there is a sink")
                worker.until(lambda: handed(file) != [], "it reads")
        worker.until(lambda: len(set(handed(file))) == sum(ROUNDS) * KEYS, "everything is handed to the sink")
        status = call_worker(rest, "/connectors/sink/status")
        groups = {row["group"] for row in anabranch.control.state()["groups"]}
    assert [one["state"] for one in (status["connector"], *status["tasks"])] == ["RUNNING"] * 3, status
    assert {"workers", "connect-sink"} <= groups
    assert bool(misplaced(handed(file))) == (policy == "ignore")


WORKER: Final = """
bootstrap.servers={servers}
listeners={rest}
group.id=workers
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
config.storage.topic=connect-configs
offset.storage.topic=connect-offsets
offset.storage.partitions=2
status.storage.topic=connect-status
status.storage.partitions=1
offset.flush.interval.ms=300
consumer.metadata.max.age.ms=300
consumer.heartbeat.interval.ms=300
consumer.session.timeout.ms=6000
consumer.max.poll.records=50
"""
SINK: Final = {"connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector", "tasks.max": "2"}


def call_worker(rest: str, path: str, put: dict[str, str] | None = None) -> Any:
    """What the worker answers; None while it does not."""
    body = None if put is None else json.dumps(put).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(rest + path, body, headers, method="GET" if put is None else "PUT")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        assert error.code in (404, 409, 500, 503), error.read()
    except OSError:
        return None
    return None


def handed(file: Path) -> list[tuple[str, int]]:
    """The key and number of each record that a task of the sink was handed, in the order in which it wrote them."""
    lines = file.read_text().split("\n")[:-1]
    return [(key, int(sequence)) for key, sequence in (line.split() for line in lines)]


def misplaced(records: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Those that came for the first time after a later one of their key."""
    last: dict[str, int] = defaultdict(lambda: -1)
    found = []
    for key, sequence in dict.fromkeys(records):
        if sequence < last[key]:
            found.append((key, sequence))
        last[key] = max(last[key], sequence)
    return found
