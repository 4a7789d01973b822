"""Kafka's command line tools and a Kafka Streams application, if Kafka's jars are available."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator

import pytest

from anabranch import Producer
from anabranch.spark_jobs import java
from tests.differential.kafka_server import VARIABLE, why_absent
from tests.interop.clients import CLIENTS
from tests.interop.world import World, running_world

pytestmark = [
    pytest.mark.interop,
    pytest.mark.kafka_jars,
    pytest.mark.processes,
    pytest.mark.zookeeper,
]
TOOLS = "org.apache.kafka.tools"
JAVA = next(client for client in CLIENTS if client.name == "java")


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    if reason := why_absent("kafka-tools"):
        pytest.skip(f"NOT TRIED WITH KAFKA'S TOOLS: {reason}")
    with running_world() as one:
        yield one


def tool(world: World, name: str, *words: str, servers: str = "--bootstrap-server", stdin: str = "") -> str:
    """What a tool prints; it has to end well."""
    command = [java.find().command, "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", f"{os.environ[VARIABLE]}/*", name]
    ran = subprocess.run(
        [*command, servers, world.servers, *words], input=stdin, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_console_tools_manage_topics_records_groups_and_offsets(world: World) -> None:
    topic, group = world.name("tool"), world.name("group")
    tool(world, f"{TOOLS}.TopicCommand", "--create", "--topic", topic, "--partitions", "2", "--replication-factor", "3")
    assert topic in tool(world, f"{TOOLS}.TopicCommand", "--list").split()
    lines = "".join(f"k{number}:v{number}\n" for number in range(20))
    keyed = ["--topic", topic, "--property", "parse.key=true", "--property", "key.separator=:"]
    tool(world, "kafka.tools.ConsoleProducer", *keyed, stdin=lines)
    read = ["--topic", topic, "--group", group, "--from-beginning", "--max-messages", "20", "--timeout-ms", "20000"]
    got = tool(world, f"{TOOLS}.consumer.ConsoleConsumer", *read)
    assert sorted(got.split()) == sorted(f"v{number}" for number in range(20))
    command = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
    assert group in tool(world, command, "--list").split()
    rows = re.findall(
        rf"^{group} +{topic} +\d +(\d+) +(\d+) +0 ", tool(world, command, "--describe", "--group", group), re.M
    )
    assert sum(int(committed) for committed, _ in rows) == 20
    back = ["--group", group, "--topic", topic, "--reset-offsets", "--to-earliest", "--execute"]
    assert len(re.findall(rf"\b{group} +{topic} +\d +0\b", tool(world, command, *back))) == 2
    ends = tool(world, f"{TOOLS}.GetOffsetShell", "--topic", topic)
    assert sum(int(end) for end in re.findall(rf"^{topic}:\d:(\d+)$", ends, re.M)) == 20
    assert "successful" in tool(world, command, "--delete", "--group", group)
    assert topic not in tool(world, f"{TOOLS}.TopicCommand", "--delete", "--topic", topic)


def test_config_tool_describes_what_it_altered(world: World) -> None:
    topic = world.topic("tool")
    entity = ["--entity-type", "topics", "--entity-name", topic]
    tool(world, "kafka.admin.ConfigCommand", *entity, "--alter", "--add-config", "retention.ms=4711")
    assert "retention.ms=4711" in tool(world, "kafka.admin.ConfigCommand", *entity, "--describe")
    quota = ["--entity-type", "clients", "--entity-name", world.name("client")]
    tool(world, "kafka.admin.ConfigCommand", *quota, "--alter", "--add-config", "producer_byte_rate=1024")
    assert "producer_byte_rate=1024.0" in tool(world, "kafka.admin.ConfigCommand", *quota, "--describe")


def test_console_tools_describe_brokers(world: World) -> None:
    versions = tool(world, "kafka.admin.BrokerApiVersionsCommand")
    assert versions.count("Produce(0): 0 to 11 [usable: 11]") == 3
    topic = world.topic("tool")
    assert f'"{topic}-0"' in tool(world, f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", topic)
    elect = ["--election-type", "preferred", "--topic", topic, "--partition", "0"]
    assert "already" in tool(world, f"{TOOLS}.LeaderElectionCommand", *elect).lower()
    assert "Transaction" in tool(world, f"{TOOLS}.TransactionsCommand", "list")


def test_streams_counts_words_exactly_once_while_coordinator_dies(world: World) -> None:
    if JAVA.absent:
        pytest.skip(f"NOT TRIED WITH KAFKA STREAMS: {JAVA.absent}")
    topic, target, application = world.topic("lines"), world.topic("counts"), world.name("application")
    lines = ["a b a", "b c", "a"] * 50

    async def write(first: int) -> None:
        async with Producer(bootstrap_servers=world.servers) as producer:
            for number, line in enumerate(lines):
                await producer.send(topic, key=b"%d" % (first + number), value=line.encode())

    asked = {"servers": world.servers, "topic": topic, "target": target, "application": application}
    with JAVA.run("streams", **asked) as streams:

        def counts() -> dict[str, int]:
            found: dict[str, int] = {}
            for one in streams.told("counted"):
                found[one["word"]] = max(one["count"], found.get(one["word"], 0))
            return found

        world.do(write(0))
        streams.until(lambda: counts() == {"a": 150, "b": 100, "c": 50}, "the first counts", 90)
        victim = world.coordinator(application)
        world.kill(victim)
        world.do(write(1000))
        streams.until(lambda: counts() == {"a": 300, "b": 200, "c": 100}, "all counts", 90)
        streams.stop()
    world.heal(topic, target)
