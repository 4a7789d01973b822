"""The tests of examples/testing/ pass with the commands of its README, on one cluster of `up --control`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker_engine import built_image, engine_networks
from tests.running import running

pytestmark = pytest.mark.interop

ROOT = Path(__file__).parents[2]
WHOLE = bool(os.environ.get("ANABRANCH_INTEROP"))
EXAMPLES = ROOT / "examples/testing"


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    with running("up", "--port", "0", "--control", "127.0.0.1:0") as ready:
        yield {**os.environ, "ANABRANCH_CONTROL": ready["control"], "PYTHONPATH": str(ROOT / "src")}


def run(words: list[str], environment: dict[str, str], directory: Path) -> str:
    done = subprocess.run(words, env=environment, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_python_example_passes(environment: dict[str, str]) -> None:
    if not WHOLE:
        pytest.skip("not `make interop`: the example in Python, half a minute of waits, was NOT run")
    output = run([sys.executable, "-m", "pytest", "-q", "examples/testing/python"], environment, ROOT)
    assert "16 passed" in output


@pytest.mark.parametrize(
    ("program", "words", "directory", "summaries"),
    [
        (sys.executable, ["-m", "pytest", "-q", "examples/testing/python"], ".", ["14 passed, 2 skipped"]),
        ("go", ["test", "-count=1", "-v", "./..."], "examples/testing/go", ["--- SKIP: ", "ok  \tshop"]),
        ("mvn", ["-B", "test"], "examples/testing/java", ["Tests run: 17, Failures: 0, Errors: 0, Skipped: 2"]),
        ("npm", ["test"], "examples/testing/typescript", ["# pass 15", "# fail 0", "# skipped 1"]),
    ],
    ids=["python", "go", "java", "typescript"],
)
def test_example_passes_with_kills_of_real_processes(
    program: str, words: list[str], directory: str, summaries: list[str]
) -> None:
    """Processes have the time of their machine, so tests that advance the clock are skipped."""
    if not WHOLE or shutil.which(program) is None:
        pytest.skip(f"NO {program}, or not `make interop`: the example on node processes, two minutes, was NOT run")
    with running("up", "--processes", "--zookeeper", "local", "--port", "0", "--control", "127.0.0.1:0") as ready:
        environment = {**os.environ, "ANABRANCH_CONTROL": ready["control"], "PYTHONPATH": str(ROOT / "src")}
        if program == "npm":
            run(["npm", "install", "--no-audit", "--no-fund"], environment, ROOT / directory)
        output = run([program, *words], environment, ROOT / directory)
    assert all(one in output for one in summaries), output


def test_chaos_over_http_ends_with_a_verdict(tmp_path: Path) -> None:
    if not WHOLE or shutil.which("curl") is None:
        pytest.skip("NO CURL, or not `make interop`: the chaos run over HTTP, a minute, was NOT run")
    environment = {**os.environ, "PYTHON": sys.executable, "AUDIT": "0"}  # Spark's verdict takes half a minute more
    said = run(["sh", str(EXAMPLES.parent / "chaos/run.sh"), "20", str(tmp_path)], environment, ROOT)
    assert "PASSED: no violation" in said
    kinds = {row["kind"] for row in json.loads((tmp_path / "events.json").read_text())}
    assert {"node killed", "node started", "leader"} <= kinds
    assert (tmp_path / "sent.jsonl").stat().st_size > 0


def test_go_example_passes(environment: dict[str, str]) -> None:
    if not WHOLE or shutil.which("go") is None:
        pytest.skip("NO GO, or not `make interop`: the example in Go, which has to be compiled, was NOT run")
    output = run(["go", "test", "-count=1", "-v", "./..."], environment, EXAMPLES / "go")
    assert output.count("--- PASS") == 15


def test_java_example_passes(environment: dict[str, str]) -> None:
    if not WHOLE or shutil.which("mvn") is None:
        pytest.skip("NO MAVEN, or not `make interop`: the example in Java, which has to be compiled, was NOT run")
    output = run(["mvn", "-B", "test"], environment, EXAMPLES / "java")
    assert "Tests run: 17, Failures: 0, Errors: 0, Skipped: 0" in output


def test_in_spring(environment: dict[str, str]) -> None:
    if not WHOLE or shutil.which("mvn") is None:
        pytest.skip("NO MAVEN, or not `make interop`: the Spring Boot test, which has to be compiled, was NOT run")
    told = run(["mvn", "-B", "test"], environment, EXAMPLES / "spring")
    assert "Tests run: 3, Failures: 0, Errors: 0, Skipped: 0" in told


def test_the_container_for_java_compiles() -> None:
    if not WHOLE or shutil.which("mvn") is None:
        pytest.skip("NO MAVEN, or not `make interop`: the container for Java was NOT compiled")
    run(["mvn", "-B", "-q", "test-compile"], dict(os.environ), EXAMPLES / "testcontainers")


@pytest.mark.docker
def test_the_container_for_java_runs() -> None:
    if shutil.which("mvn") is None:
        pytest.skip("NO MAVEN: the container for Java was NOT run")
    if "bridge" not in engine_networks():
        pytest.skip("NO BRIDGE in the Docker engine, so no port is published: the container for Java was NOT run")
    built_image("anabranch")
    environment = {**os.environ, "TESTCONTAINERS_RYUK_DISABLED": "true"}  # its image would be pulled
    if Path("/.dockerenv").exists():  # so would the one that finds the engine's address from inside a container
        environment["TESTCONTAINERS_HOST_OVERRIDE"] = "127.0.0.1"
    told = run(["mvn", "-B", "test"], environment, EXAMPLES / "testcontainers")
    assert "Tests run: 2, Failures: 0, Errors: 0, Skipped: 0" in told


def test_typescript_example_passes(environment: dict[str, str]) -> None:
    if not WHOLE or shutil.which("npm") is None:
        pytest.skip("NO NODE, or not `make interop`: the example in TypeScript, which has to be compiled, was NOT run")
    run(["npm", "install", "--no-audit", "--no-fund"], environment, EXAMPLES / "typescript")
    output = run(["npm", "test"], environment, EXAMPLES / "typescript")
    assert "# pass 16" in output and "# fail 0" in output
