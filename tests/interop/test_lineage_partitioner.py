"""Kafka's producer with `examples/java/LineagePartitioner.java`, on a topic that is resized 4 -> 6 -> 3.

Needs a JDK and kafka-clients with what it depends on: ANABRANCH_KAFKA_JARS names the directory.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from anabranch.protocol.linear_hashing import address
from anabranch.spark_jobs import java
from tests.clients.partitioners.load import COUNTS, create, judged, resize
from tests.interop.clients import JARS

pytestmark = [pytest.mark.interop, pytest.mark.kafka_jars]

ROOT = Path(__file__).parents[2]
IN_FLIGHT = 2000
"""The most records of LineageLoad that are sent and not settled: those of the old lineage are refused."""
LATEST = 1000


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What runs the load; the partitioner comes from a jar of its own."""
    given = os.environ.get(JARS, "")
    if not given or not list(Path(given).glob("kafka-clients-*.jar")) or java.why_missing(module=java.COMPILER):
        pytest.skip(
            f"THE PARTITIONER FOR JAVA WAS NOT TRIED: {JARS}={given!r} has no kafka-clients, or there is no JDK"
        )
    jdk = java.find(module=java.COMPILER).home / "bin"
    built, jar = tmp_path_factory.mktemp("classes"), tmp_path_factory.mktemp("jar") / "lineage.jar"
    run = {"check": True, "timeout": 100}
    jars = f"{given}/*"
    source = ROOT / "examples/java/LineagePartitioner.java"
    subprocess.run([jdk / "javac", "-Werror", "-Xlint:all", "-cp", jars, "-d", built, source], **run)  # type: ignore[call-overload]
    subprocess.run([jdk / "jar", "--create", "--file", jar, "-C", built, "."], **run)  # type: ignore[call-overload]
    load = Path(__file__).with_name("LineageLoad.java")
    return [str(jdk / "java"), "-XX:TieredStopAtLevel=1", "-cp", f"{jar}:{jars}", str(load)]


def test_addresses_equal_linear_hashing(command: list[str]) -> None:
    output = subprocess.run([*command, "addresses"], check=True, capture_output=True, text=True, timeout=100).stdout
    rows = [list(map(int, line.split("\t"))) for line in output.splitlines()]
    assert len(rows) == 300
    for base, count, *places in rows:
        assert places == [address(number * 7919, base, count) for number in range(200)], (base, count)


def settle(command: list[str], servers: str, topic: str, how: str, accepted: int = 0) -> dict[str, list[str]]:
    """What became of the records; the topic is resized twice while they are sent, each time until so many in a row are
    accepted.
    """
    lines: list[list[str]] = []
    with subprocess.Popen(
        [*command, servers, topic, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for count in COUNTS:
            if count != COUNTS[0]:
                asyncio.run(resize(servers, topic, count))
            told = in_a_row = 0
            while told < 2000 or in_a_row < accepted:
                lines.append(process.stdout.readline().rstrip("\n").split("\t"))
                told, in_a_row = told + 1, 0 if lines[-1][1] else in_a_row + 1
        process.stdin.close()
        lines += [line.rstrip("\n").split("\t") for line in process.stdout]
    assert process.returncode == 0
    assert lines.pop() == ["done", ""]
    outcomes: dict[str, list[str]] = {}
    for value, outcome in lines:
        outcomes.setdefault(value, []).append(outcome)
    return outcomes


@pytest.mark.anabranch(brokers=3)
def test_no_record_is_misplaced_and_every_refused_record_is_reported(anabranch: Any, command: list[str]) -> None:
    servers = anabranch.bootstrap_servers
    topic = asyncio.run(create(servers))
    outcomes = settle(command, servers, topic, "flood", IN_FLIGHT + LATEST)
    assert all(len(told) == 1 for told in outcomes.values())
    refused = {value for value, told in outcomes.items() if told != [""]}
    assert refused
    latest = sorted(outcomes, key=lambda value: value.split(":")[1])[-LATEST:]
    assert not refused & set(latest), "what was refused has taught it"
    asyncio.run(judged(servers, topic, [value.encode() for value in outcomes.keys() - refused]))


@pytest.mark.anabranch(brokers=3)
def test_one_record_per_key_in_flight_keeps_order(anabranch: Any, command: list[str]) -> None:
    servers = anabranch.bootstrap_servers
    topic = asyncio.run(create(servers))
    outcomes = settle(command, servers, topic, "ordered")
    again = outcomes.pop("again")
    assert again
    assert all(told == [""] for told in outcomes.values())
    by_key = asyncio.run(judged(servers, topic, [value.encode() for value in outcomes]))
    assert all(values == sorted(values) for values in by_key.values())
