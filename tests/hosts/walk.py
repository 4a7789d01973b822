"""The walk of docs/hosts.md with three machines and a client: `python -m tests.hosts.walk FOLDER [PICTURE]`.

Prints each step, the commands that a reader types, and what they took. Ends with an AssertionError at the first step
whose outcome is another.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.hosts.network import NAMED, Network
from tests.spark_jobs.standalone import HOME, environment

NODES: Final = ("one", "two", "three")
CLIENT: Final = "client"
ANABRANCH: Final = (sys.executable, "-m", "anabranch.cli.main")
NODE_PROPERTIES: Final = """\
ssl.keystore.type=PEM
ssl.keystore.location=certs/broker.pem
ssl.truststore.type=PEM
ssl.truststore.location=certs/ca.pem
ssl.client.auth=required
security.inter.broker.protocol=SSL
zookeeper.session.timeout.ms=3000
"""
CLIENT_PROPERTIES: Final = """\
security.protocol=SSL
ssl.keystore.type=PEM
ssl.keystore.location={folder}/certs/client.pem
ssl.truststore.type=PEM
ssl.truststore.location={folder}/certs/ca.pem
"""
PATIENCE_S: Final = 600
"""On a busy machine the audit takes minutes: its JVMs share the processors with the nodes."""


class Walk:
    """The hosts, and what a reader of the page does on them.

    Args:
        network: The hosts.
        folder: The home directories of the hosts.
    """

    def __init__(self, network: Network, folder: Path) -> None:
        self.network = network
        self._folder = folder
        self._began_s = time.perf_counter()
        self.tokens = {name: f"token-of-{name}" for name in ("agents", "front")}
        self.zookeeper = self._all(2181)
        self.bootstrap = self._all(9093)
        self.front = f"https://{network.address('one')}:9191"
        self.nodes: dict[str, subprocess.Popen[str]] = {}

    def _all(self, port: int) -> str:
        return ",".join(f"{self.network.address(host)}:{port}" for host in NODES)

    def home(self, host: str) -> Path:
        """The directory in which the commands of a host run."""
        return self._folder / host

    def step(self, text: str) -> None:
        """Print the time, and what comes now."""
        print(f"[{time.perf_counter() - self._began_s:6.1f} s] {text}", flush=True)

    def start(self, host: str, name: str, line: str, **variables: str) -> subprocess.Popen[str]:
        """Start a server on a host."""
        program, *words = shlex.split(line)
        command = [*ANABRANCH, *words] if program == "anabranch" else [program, *words]
        print(f"  {host}$ {line}", flush=True)
        return self.network.run(host, name, command, cwd=self.home(host), env=self._environment(host, variables))

    def run(self, line: str, status: int = 0, host: str = CLIENT, **variables: str) -> str:
        """Run a command to its end, check its exit status, and return its output."""
        began_s = time.perf_counter()
        program, *words = shlex.split(line)
        inside = ["ip", "netns", "exec", self.network.namespace(host), *NAMED, host]
        command = [*ANABRANCH, *words] if program == "anabranch" else [program, *words]
        done = subprocess.run(
            [*inside, *command],
            cwd=self.home(host),
            env=self._environment(host, variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        took_s = time.perf_counter() - began_s
        print(f"  {host}$ {line}   ({took_s:.1f} s)\n{_indented(done.stdout)}", end="", flush=True)
        assert done.returncode == status, f"exit status {done.returncode} instead of {status}"
        return done.stdout

    def _environment(self, host: str, variables: Mapping[str, str]) -> dict[str, str]:
        return {**os.environ, "XDG_CONFIG_HOME": str(self.home(host) / "config"), **variables}

    def prepare(self) -> None:
        """Make the certificates, the token, and the properties, and copy them to all hosts."""
        self.step("certificates, token and properties, copied to each machine")
        for host in (*NODES, CLIENT):
            self.home(host).mkdir(parents=True)
        hosts = " ".join(f"--host {self.network.address(host)}" for host in NODES)
        self.run(f"anabranch certs make ./certs {hosts}")
        for host in (*NODES, CLIENT):
            if host != CLIENT:
                shutil.copytree(self.home(CLIENT) / "certs", self.home(host) / "certs")
            for name, token in self.tokens.items():
                path = self.home(host) / f"{name}.token"
                path.touch(mode=0o600)
                path.write_text(f"{token}\n")
            (self.home(host) / "node.properties").write_text(NODE_PROPERTIES)
            (self.home(host) / "client.properties").write_text(CLIENT_PROPERTIES.format(folder=self.home(CLIENT)))

    def start_zookeeper(self) -> None:
        """Start the ensemble."""
        self.step("an ensemble of three ZooKeeper servers")
        servers = " ".join(f"--server {number}={self.network.address(host)}" for number, host in enumerate(NODES, 1))
        started = [
            self.start(
                host,
                "zookeeper",
                f"anabranch zookeeper --listen {self.network.address(host)}:2181 --data-dir ./zk "
                f"--id {number} {servers}",
            )
            for number, host in enumerate(NODES, 1)
        ]
        for one in started:
            wait_ready(one)

    def start_node(self, host: str) -> None:
        """Start the node of a host."""
        number, address = NODES.index(host) + 1, self.network.address(host)
        line = (
            f"anabranch node --id {number} --listener SSL://{address}:9093 --data-dir ./node "
            f"--zookeeper {self.zookeeper} --config-file node.properties "
            f"--control {address}:9190 --control-certificate certs/broker.pem"
        )
        token = {"ANABRANCH_CONTROL_TOKEN": self.tokens["agents"]}
        self.nodes[host] = self.start(host, "node", line, **token)

    def start_cluster(self) -> None:
        """Start the nodes, and the front; make a context on the client."""
        self.step("three nodes with TLS between them, and TLS and a token for their agents")
        for host in NODES:
            self.start_node(host)
        for host in NODES:
            wait_ready(self.nodes[host])
        self.step("a front on the first machine, which finds the agents in ZooKeeper")
        line = (
            f"anabranch control serve --zookeeper {self.zookeeper} --control {self.network.address('one')}:9191 "
            "--control-certificate certs/broker.pem --token-file agents.token --ca-file certs/ca.pem "
            "--command-config client.properties"
        )
        wait_ready(self.start("one", "front", line, ANABRANCH_CONTROL_TOKEN=self.tokens["front"]))
        self.step("a context on the client's machine, and a topic")
        line = (
            f"anabranch context create machines --bootstrap-servers {self.bootstrap} "
            f"--command-config client.properties --control {self.front} "
            f"--control-token {self.tokens['front']} --control-ca certs/ca.pem"
        )
        self.run(line)
        self.run("anabranch context use machines")
        self.run("anabranch topics create orders --partitions 3 --replicas 3 --config min.insync.replicas=2")
        self.run("anabranch topics create orders-audit --partitions 3 --replicas 3 --config min.insync.replicas=2")

    def refuse_bad_credentials(self) -> None:
        """Requests without TLS, without a token, and with an unknown CA are refused in one line."""
        self.step("no TLS, no token, an unknown CA: one line each")
        plain = self.front.replace("https", "http")
        assert "write https://" in self.run(f"anabranch control state --control {plain}", 1)
        assert "--control-ca" in self.run(f"anabranch control state --control {self.front}", 1)
        line = f"anabranch control state --control {self.front} --control-ca certs/ca.pem"
        assert "--control-token" in self.run(line, 1)

    def start_load(self) -> subprocess.Popen[str]:
        """Start a producer and a group whose deliveries are audited."""
        self.step("a producer and a group on the client's machine; each delivery is recorded in orders-audit")
        words = [sys.executable, "-m", "tests.hosts.audited", self.bootstrap, "client.properties"]
        variables = {"PYTHONPATH": str(Path.cwd())}
        load = self.network.run(CLIENT, "load", words, cwd=self.home(CLIENT), env=self._environment(CLIENT, variables))
        ask(load, "acked 200")
        return load

    def add_rule(self, load: subprocess.Popen[str]) -> None:
        """A rule on nodes of two hosts, whose count applies to both together."""
        self.step("a rule on the nodes of two machines; times=6 means six hits in all")
        line = (
            "anabranch faults add --api Produce --topic orders --error NOT_LEADER_OR_FOLLOWER "
            "--brokers 1 --brokers 2 --times 6"
        )
        name = self.run(line).strip()
        self.run(f"anabranch faults wait {name} --hits 6")
        ask(load, "acked 200")
        assert "6" in self.run("anabranch faults list")

    def kill_and_restart(self, load: subprocess.Popen[str]) -> None:
        """The front kills a node of its own machine, and refuses one of another."""
        self.step("the front kills the node of its own machine; a node of another machine is refused")
        assert "runs on two, and this front on one" in self.run("anabranch control kill 2", 1)
        self.run("anabranch control kill 1")
        self.nodes["one"].wait(PATIENCE_S)
        ask(load, "acked 200")
        assert "start node 1 as it was started before" in self.run("anabranch control start 1", 1)
        self.start_node("one")
        wait_ready(self.nodes["one"])
        self.run("anabranch control wait topic=orders isr=1,2,3 --timeout 120")

    def cut_while_splitting(self, load: subprocess.Popen[str]) -> None:
        """Split the topic under load, and cut a host off while the split waits for it; then connect it again."""
        self.step("the topic is split, and waits for the third node, whose machine then loses its network")
        self.run("anabranch faults add --name waiting --api LeaderAndIsr --link *:3 --hold")
        split = self.start(CLIENT, "split", "anabranch topics alter orders --partitions 6")
        self.run("anabranch faults wait waiting --hits 1")
        self.network.cut("three")
        assert split.poll() is None, "the split has ended before the cut"
        ask(load, "acked 400")
        self.run("anabranch control wait topic=orders isr=1,2 --timeout 120")
        assert split.wait(PATIENCE_S) == 0
        print(_indented(split.communicate()[0]), end="", flush=True)
        self.step("the third machine is connected again")
        self.network.heal("three")
        self.run("anabranch faults remove waiting")
        self.run("anabranch control wait topic=orders isr=1,2,3 --timeout 120")
        ask(load, "acked 200")

    def audit(self, load: subprocess.Popen[str]) -> None:
        """Audit the deliveries on a standalone Spark cluster of two of the hosts."""
        self.step("the load ends, and a standalone Spark cluster starts on two machines")
        counts = ask(load, "end")
        assert counts["acked"] == counts["delivered"], counts
        master = f"spark://{self.network.address('one')}:7077"
        spark = environment(self._folder)
        for host, name, words in (
            ("one", "master", "Master --port 7077"),
            ("one", "worker", f"Worker --cores 1 --memory 640m --work-dir ./spark {master}"),
            ("two", "worker", f"Worker --cores 1 --memory 640m --work-dir ./spark {master}"),
        ):
            address = self.network.address(host)
            kind, _, rest = words.partition(" ")
            line = f"{HOME}/bin/spark-class org.apache.spark.deploy.{kind.lower()}.{kind} --host {address} {rest}"
            print(f"  {host}$ spark-class{line.partition('spark-class')[2]}", flush=True)
            self.network.run(
                host,
                f"spark-{name}",
                shlex.split(line),
                cwd=self.home(host),
                env={**spark, "SPARK_LOCAL_IP": address, "SPARK_WORKER_WEBUI_PORT": "0"},
            )
        self.step("the audit, whose driver runs on the client's machine")
        driver = self.network.address(CLIENT)
        line = (
            f"anabranch audit --master {master} --topic orders-audit --expect orders --group billing --backfill "
            f"--conf spark.driver.host={driver} --conf spark.executor.memory=512m"
        )
        self.run(line, SPARK_LOCAL_IP=driver, JAVA_HOME=spark["JAVA_HOME"])
        verdict = json.loads((self.home(CLIENT) / "out/audit/orders-audit/backfill/verdict.json").read_text())
        print(_indented(json.dumps(verdict, indent=1)), end="", flush=True)

    def photograph(self, picture: Path) -> None:
        """Photograph the dashboard from the client's machine."""
        self.step("a photograph of the dashboard")
        words = shlex.join([sys.executable, "-m", "tests.hosts.photograph", self.front, "front.token", str(picture)])
        self.run(words, PYTHONPATH=str(Path.cwd()))


def wait_ready(process: subprocess.Popen[str]) -> None:
    """Wait for the ready line of a server, and print it."""
    assert process.stdout is not None
    while not (line := process.stdout.readline()).startswith("ready"):
        assert line, f"{process.args!r} ended with {process.wait()}"
    print(f"  {line}", end="", flush=True)


def ask(load: subprocess.Popen[str], line: str) -> dict[str, int]:
    """Send a line to the load, and wait for its response."""
    assert load.stdin is not None and load.stdout is not None
    load.stdin.write(f"{line}\n")
    load.stdin.flush()
    answer = load.stdout.readline()
    assert answer, f"the load has ended with {load.wait()}"
    print(f"  load: {line}: {answer}", end="", flush=True)
    counts: dict[str, int] = json.loads(answer)
    return counts


def _indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())


def main(folder: Path, picture: Path | None = None) -> None:
    """Do the whole walk; the hosts and their processes end with it."""
    with Network(folder, *NODES, CLIENT) as network:
        walk = Walk(network, folder)
        walk.prepare()
        walk.start_zookeeper()
        walk.start_cluster()
        walk.refuse_bad_credentials()
        load = walk.start_load()
        walk.add_rule(load)
        walk.kill_and_restart(load)
        walk.cut_while_splitting(load)
        if picture is not None:
            walk.photograph(picture)
        walk.audit(load)
        walk.step("done")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve() if sys.argv[2:] else None)
