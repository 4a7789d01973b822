"""The compose files run as they are written, with other ports: clients connect, and containers have no more rights
than they need.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from anabranch.control.client import ControlClient
from anabranch.control.control_error import ControlError
from anabranch.control.tour.guide import STORIES
from anabranch.testing.containers import adjacent_free_ports
from anabranch.testing.running_cluster import RunningCluster
from tests.docker_engine import ROOT, built_image, compose_command, docker, engine_networks

pytestmark = pytest.mark.docker
TOKEN = "secret"
UP = ("up", "--no-build", "--detach")


class Compose:
    """One project of Compose, from a file of the repository."""

    def __init__(self, words: list[str], environment: Mapping[str, str]) -> None:
        self.words = words
        self.environment = {**os.environ, "COMPOSE_HTTP_TIMEOUT": "600", **environment}

    def run(self, *words: str, status: int = 0) -> str:
        done = subprocess.run(
            [*self.words, *words], capture_output=True, text=True, env=self.environment, cwd=ROOT, check=False
        )
        assert done.returncode == status, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def state(self, service: str) -> dict[str, Any]:
        """What the engine says of the container of a service."""
        (container,) = self.run("ps", "--quiet", service).split()
        (found,) = json.loads(docker("inspect", container).stdout)
        return dict(found)


@contextmanager
def composed(
    file: Path, environment: Mapping[str, str], *services: str, overlay: Path | None = None
) -> Iterator[Compose]:
    """Start services of a file, by default all, and remove them with their volumes. `overlay`: another file over it."""
    project = f"anabranch-{adjacent_free_ports(1)}"
    words = [*compose_command(), "--project-name", project, "--file", str(file)]
    words += () if overlay is None else ("--file", str(overlay))
    compose = Compose(words, environment)
    try:
        compose.run(*UP, *services)
        yield compose
    finally:
        compose.run("down", "--volumes", "--timeout", "60")


def with_ports(kind: str, directory: Path, ports: Mapping[str, str]) -> Path:
    """Copy a file of deploy/ with other ports, and with folders of its own."""
    text = (ROOT / f"deploy/compose.{kind}.yml").read_text()
    for written, other in ports.items():
        assert written in text, f"compose.{kind}.yml has no {written}"
        text = text.replace(written, other)
    copy = directory / "compose.yml"
    copy.write_text(text)
    return copy


def wait_healthy(compose: Compose, service: str) -> None:
    """Wait until the health check of the image says so; it is asked for every few seconds."""
    container = compose.state(service)["Id"]
    wait_until(f"docker inspect --format '{{{{.State.Health.Status}}}}' {container} | grep -qx healthy")


def wait_ready(compose: Compose, service: str) -> None:
    """Wait for the ready line of `anabranch up`: the health check asks the first broker alone."""
    wait_until(f"docker logs {compose.state(service)['Id']} 2>&1 | grep -q '^ready '")


def wait_until(command: str) -> None:
    subprocess.run(["bash", "-c", f"until {command}; do sleep 1; done"], timeout=240, check=True)


def assert_confined(compose: Compose) -> None:
    """It has a user without rights, no capability, and nothing to write to but its data and /tmp."""
    assert compose.run("exec", "-T", "kafka", "id", "-u").strip() == "9092"
    assert "Read-only file system" in compose.run("exec", "-T", "kafka", "touch", "/opt/anabranch/x", status=1)
    assert "Read-only file system" in compose.run("exec", "-T", "kafka", "touch", "/etc/x", status=1)
    compose.run("exec", "-T", "kafka", "touch", "/data/x", "/tmp/x")
    capabilities = compose.run("exec", "-T", "kafka", "grep", "-E", "Cap(Eff|Bnd)|NoNewPrivs", "/proc/self/status")
    assert re.findall(r"\w+", capabilities)[1::2] == ["0" * 16, "0" * 16, "1"], capabilities


def assert_dashboard(port: int) -> None:
    """The page is for everybody, the cluster only for those who have the token."""
    url = f"http://127.0.0.1:{port}"
    with urllib.request.urlopen(url) as page:
        assert b"<title>Anabranch</title>" in page.read()
    with pytest.raises(ControlError, match="Authorization"):
        ControlClient(url).state()
    assert all(node["running"] for node in ControlClient(url, TOKEN).state()["nodes"])


@pytest.fixture(scope="module")
def bridge() -> None:
    compose_command()
    if "bridge" not in engine_networks():
        pytest.skip("NO BRIDGE in the Docker engine, so no port is published: the compose file was NOT run")
    built_image("anabranch")


def test_compose_dashboard_serves_clients_and_keeps_records_of_a_restart(bridge: None, tmp_path: Path) -> None:
    first = adjacent_free_ports(4)
    ports = {
        "9092-9094:9092-9094": f"{first}-{first + 2}:9092-9094",
        "127.0.0.1:9190:9190": f"127.0.0.1:{first + 3}:9190",
        '"--advertise", "localhost"': f'"--advertise", "localhost:{first}"',
    }
    file = with_ports("dashboard", tmp_path, ports)
    with composed(file, {"ANABRANCH_CONTROL_TOKEN": TOKEN}) as compose:
        wait_healthy(compose, "kafka")
        assert_confined(compose)
        servers = ",".join(f"localhost:{first + number}" for number in range(3))
        kafka = RunningCluster(servers, ControlClient(f"http://127.0.0.1:{first + 3}", TOKEN))
        topic = kafka.topic("orders", partitions=3)
        assert len(kafka.control.state()["nodes"]) == 3
        assert_dashboard(first + 3)
        compose.run("restart", "--timeout", "60")
        wait_healthy(compose, "kafka")
        assert kafka.admin.describe_topic(topic).name == topic


@pytest.mark.parametrize("processes", [False, True], ids=["one process", "processes"])
def test_six_stories_of_the_tour_pass_in_the_container_of_compose_dashboard(
    bridge: None, tmp_path: Path, processes: bool
) -> None:
    """The second time with a process for each node, and one for ZooKeeper: kills are those of processes."""
    first = adjacent_free_ports(4)
    changes = {
        '"127.0.0.1:9092-9094:9092-9094", ': "",
        "127.0.0.1:9190:9190": f"127.0.0.1:{first + 3}:9190",
        '"--advertise", "localhost", ': "",
        '"0.0.0.0", "--data-dir"': '"127.0.0.1", "--data-dir"',
    }
    if processes:
        changes['["up",'] = '["up", "--processes",'
    file = with_ports("dashboard", tmp_path, changes)
    with composed(file, {"ANABRANCH_CONTROL_TOKEN": TOKEN}) as compose:
        wait_ready(compose, "kafka")
        commands = compose.run("exec", "-T", "kafka", "sh", "-c", "cat /proc/[0-9]*/cmdline")
        assert ("--built-in" in commands) == processes
        control = ControlClient(f"http://127.0.0.1:{first + 3}", TOKEN)
        for story in STORIES:
            steps = list(control.tour.play(story.name))
            assert len(steps) == story.steps, story.name
            claims = [claim for step in steps for claim in step["claims"]]
            assert claims and [claim["text"] for claim in claims if not claim["holds"]] == [], story.name


def test_compose_secured_wants_tls_and_a_password(bridge: None, tmp_path: Path) -> None:
    import confluent_kafka
    from confluent_kafka.admin import AdminClient

    from anabranch.cli.main import cli

    secrets = tmp_path / "secrets"
    cli(["certs", "make", str(secrets / "certs"), "--user", "alice"], standalone_mode=False)
    properties = (ROOT / "deploy/server.properties").read_text()
    (secrets / "server.properties").write_text(properties.replace("replace me", "a password"))
    for path in (secrets, *secrets.rglob("*")):
        os.chown(path, 9092, 9092)

    first = adjacent_free_ports(2)
    ports = {
        "SASL_SSL://0.0.0.0:9093": f"SASL_SSL://0.0.0.0:{first}",
        "127.0.0.1:9093:9093": f"127.0.0.1:{first}:{first}",
        "127.0.0.1:9190:9190": f"127.0.0.1:{first + 1}:9190",
    }
    with composed(with_ports("secured", tmp_path, ports), {"ANABRANCH_CONTROL_TOKEN": TOKEN}) as compose:
        wait_healthy(compose, "kafka")
        assert_confined(compose)
        settings = {
            "bootstrap.servers": f"localhost:{first}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(secrets / "certs/ca.pem"),
            "sasl.mechanism": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": "a password",
        }
        (broker,) = AdminClient(settings).list_topics(timeout=60).brokers.values()
        assert (broker.host, broker.port) == ("localhost", first)
        assert_dashboard(first + 1)
        refused = AdminClient({**settings, "sasl.password": "another"})
        with pytest.raises(confluent_kafka.KafkaException):
            refused.list_topics(timeout=3)


def test_image_with_java_runs_a_real_zookeeper() -> None:
    """On free ports, in a container that is confined like the others."""
    engine_networks()
    image, port = built_image("anabranch-jvm", "Dockerfile.jvm"), adjacent_free_ports(1)
    confined = ("--network", "host", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL")
    started = docker("run", "--detach", *confined, image, "zookeeper", "--listen", f"127.0.0.1:{port}")
    assert started.returncode == 0, started.stderr
    container = started.stdout.strip()
    try:
        health = f"anabranch health --role zookeeper 127.0.0.1:{port}"
        wait_until(f"docker exec {container} {health}")
        assert "java" in docker("exec", container, "sh", "-c", "cat /proc/[0-9]*/comm").stdout
    finally:
        docker("rm", "--force", "--volumes", container)


def test_compose_of_processes_is_resized_after_its_controller_was_killed() -> None:
    """Without the audit, which takes Spark's minutes to start: `make audit-cluster` and the demonstration run it."""
    compose_command()
    built_image("anabranch")
    names = ("PORT_1", "PORT_2", "PORT_3", "SPARE_PORT", "ZOOKEEPER_PORT")
    ports = {name: str(port) for port, name in enumerate(names, adjacent_free_ports(len(names)))}
    brokers = ("broker-1", "broker-2", "broker-3")
    with composed(ROOT / "docker-compose.yml", ports, *brokers) as compose:
        for broker in brokers:
            wait_healthy(compose, broker)
        compose.run("run", "--rm", "-T", "admin", "topics", "create", "flights", "--partitions", "4", "--replicas", "3")
        compose.run("kill", "-s", "KILL", "spare")
        compose.run("run", "--rm", "-T", "admin", "topics", "alter", "flights", "--partitions", "6")
        admin = RunningCluster(f"127.0.0.1:{ports['PORT_2']}").admin
        assert len(admin.describe_topic("flights").partitions) == 6


def test_nodes_in_containers_of_their_own_are_killed_and_frozen_by_their_front() -> None:
    """Docker starts a killed node again, as another process; the front finds it, and gives it its rules."""
    compose_command()
    built_image("anabranch")
    names = ("PORT_1", "PORT_2", "PORT_3", "SPARE_PORT", "ZOOKEEPER_PORT", "CONTROL_PORT")
    ports = {name: str(port) for port, name in enumerate(names, adjacent_free_ports(len(names)))}
    overlay = ROOT / "deploy/compose.control.yml"
    with composed(ROOT / "docker-compose.yml", ports, "front", overlay=overlay) as compose:
        wait_healthy(compose, "front")
        servers = ",".join(f"127.0.0.1:{ports[name]}" for name in names[:3])
        kafka = RunningCluster(servers, ControlClient(f"http://127.0.0.1:{ports['CONTROL_PORT']}"))
        assert sorted(row["node"] for row in kafka.control.state()["nodes"] if row["running"]) == [1, 2, 3, 100]
        topic = kafka.topic("orders", partitions=3, replicas=3)
        rule = kafka.faults.add(api="Produce", topic=topic, brokers=[2], error="NOT_ENOUGH_REPLICAS", name="starved")
        before = compose.state("broker-2")["State"]["Pid"]
        kafka.nodes[2].kill()
        kafka.control.wait_for(topic=topic, isr="1,3", timeout_s=120)
        kafka.control.wait_for(topic=topic, isr="1,2,3", timeout_s=240)
        assert compose.state("broker-2")["State"]["Pid"] != before
        assert "waiting_for" not in rule.row()
        with kafka.nodes[3].frozen():
            kafka.control.wait_for(topic=topic, isr="1,2", timeout_s=120)
        kafka.control.wait_for(topic=topic, isr="1,2,3", timeout_s=120)
        kinds = [(one["kind"], one.get("node")) for one in kafka.control.events()]
        assert {("node killed", 2), ("node frozen", 3), ("node thawed", 3)} <= set(kinds)
