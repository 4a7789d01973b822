"""A test with containers gets a cluster from one class, and any Kafka client can use it.

Method: start the image on the engine of this machine, then produce and consume with librdkafka, and do to it all that
can be done to a cluster. The image is built from the working tree, on ANABRANCH_BASE if it is set, unless
ANABRANCH_IMAGE names one. Without an engine the same command runs as a process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anabranch.control.client import ControlClient
from anabranch.control.control_error import ControlError
from anabranch.testing.running_cluster import RunningCluster
from tests.docker_engine import IMAGE, ROOT, built_image, engine_networks

if TYPE_CHECKING:
    from anabranch.testing.containers import AnabranchContainer

in_docker = pytest.mark.docker


@pytest.fixture(scope="module")
def networks() -> list[str]:
    return engine_networks()


@pytest.fixture(scope="module")
def image(networks: list[str]) -> str:
    return built_image()


@pytest.fixture
def container(image: str, networks: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[AnabranchContainer]:
    from testcontainers.core.config import testcontainers_config

    from anabranch.testing.containers import AnabranchContainer

    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", True)  # another image, to be pulled
    has_bridge = "bridge" in networks
    properties = {"num.partitions": "3"}
    with AnabranchContainer(
        image, brokers=3, properties=properties, journal=100, host_network=not has_bridge
    ) as container:
        yield container


@in_docker
def test_records_are_sent_through_container(container: AnabranchContainer) -> None:
    import confluent_kafka

    servers = container.get_bootstrap_server()
    assert len(servers.split(",")) == 3
    failures: list[str] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "acks": "all"})
    sent = {(b"key-%d" % (number % 7), b"value-%d" % number) for number in range(500)}
    for key, value in sorted(sent):
        producer.produce("t", value, key, on_delivery=lambda error, _: failures.append(str(error)) if error else None)
    assert producer.flush(60) == 0
    assert failures == []

    settings = {"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe(["t"])
    got: list[tuple[bytes, bytes]] = []
    while len(got) < len(sent):
        messages = consumer.consume(500, timeout=30)
        assert messages, f"only {len(got)} of {len(sent)} records arrived"
        got += [(message.key(), message.value()) for message in messages if message.error() is None]
    consumer.close()
    assert len(got) == len(sent)
    assert set(got) == sent
    topics = consumer_metadata(servers)
    assert topics["t"] == 3, "num.partitions did not reach the brokers"


def use(kafka: RunningCluster) -> None:
    """All that can be done to it, once."""
    import confluent_kafka

    topic = kafka.topic("controlled", partitions=2)
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers, "retry.backoff.ms": 10})
    with kafka.faults(api="Produce", topic=topic, error="NOT_LEADER_OR_FOLLOWER", times=2) as rule:
        producer.produce(topic, b"x", partition=0)
        assert producer.flush(60) == 0
        assert rule.hits == 2
    assert kafka.journal.count(api="Produce", topic=topic) == 3
    with kafka.nodes[2].killed():
        kafka.wait_for(topic=topic, isr="1,3")
    with kafka.nodes[3].frozen():
        assert kafka.control.state()["nodes"][2]["frozen"]
    kafka.wait_for(topic=topic, isr="3+")
    before_ms = kafka.clock.time_ms
    kafka.clock.advance("1h")
    assert kafka.clock.time_ms >= before_ms + 3_600_000
    assert kafka.admin.describe_topic(topic).name == topic
    kafka.snapshots.take("with a topic")
    kafka.reset()
    assert kafka.control.state()["topics"] == []
    kafka.snapshots.restore("with a topic")
    kafka.wait_for(topic=topic, partition=0, high_watermark=1)


@in_docker
def test_container_is_controlled(container: AnabranchContainer) -> None:
    use(container)
    with pytest.raises(ControlError, match="Authorization"):
        ControlClient(container.control._url).state()


def test_process_of_container_is_controlled_like_container() -> None:
    pytest.importorskip("testcontainers", reason="NO TESTCONTAINERS: its class was NOT looked at")
    from anabranch.testing.containers import TOKEN, adjacent_free_ports, command, parse_ready_line

    first = adjacent_free_ports(4)
    words = command(3, first, advertise="localhost", properties={"num.partitions": "3"}, journal=100)
    with subprocess.Popen(
        [sys.executable, "-m", "anabranch.cli.main", *words],
        env={**os.environ, TOKEN: "secret", "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            servers, control = parse_ready_line(process.stdout.readline(), "127.0.0.1", "secret")
            assert servers == ",".join(f"localhost:{first + number}" for number in range(3))
            use(RunningCluster(servers, control))
            with pytest.raises(ControlError, match="Authorization"):
                ControlClient(control._url).state()
        finally:
            process.terminate()
            process.wait(60)


def consumer_metadata(servers: str) -> dict[str, int]:
    from confluent_kafka.admin import AdminClient

    topics = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=30).topics
    return {name: len(topic.partitions) for name, topic in topics.items()}


@in_docker
def test_failed_container_shows_its_output(image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from testcontainers.core.config import testcontainers_config

    from anabranch.testing.containers import AnabranchContainer

    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", True)
    wrong = AnabranchContainer(image, properties={"num.partition": "3"}, host_network=True)
    try:
        with pytest.raises(RuntimeError, match=r"(?s)exit code: 2"):
            wrong.start()
        assert b"num.partition" in wrong.get_logs()[1]
    finally:
        wrong.stop()


@in_docker
def test_documented_example_works(
    image: str, networks: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from tests.anabranch.faults.test_page import run_pytest
    from tests.documents.blocks import blocks

    (shown,) = (one.code for one in blocks((ROOT / "docs/testing.md").read_text()) if "Docker" in one.needs)
    network = "" if "bridge" in networks else ", host_network=True"
    shown = shown.replace("AnabranchContainer(", f"AnabranchContainer({IMAGE!r}, ").replace(
        "journal=100", f"journal=100{network}"
    )
    (tmp_path / "test_shown.py").write_text(shown)
    monkeypatch.setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
    told = run_pytest(tmp_path)
    assert "1 passed" in told, told
