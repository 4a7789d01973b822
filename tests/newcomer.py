"""A newcomer's walk, with the time of each step: `python -m tests.newcomer` (`--here`: without clone and installation).

The steps are those of README.md and docs/testing.md: clone, install, the first record from a stock client, the first
failing test with its reason, the first resize, and the first fault from a Go test. A step that finds something else
than the pages promise ends the walk with what was printed. The Go step is skipped, loudly, where there is no Go.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.running import PYTEST

ROOT: Final = Path(__file__).parents[1]
DEADLINE_S: Final = 600
GREET: Final = """\
import sys

import confluent_kafka

producer = confluent_kafka.Producer({"bootstrap.servers": sys.argv[1]})
producer.produce("greetings", key="42", value="hello", on_delivery=lambda error, message: print(error or "stored"))
producer.flush()
"""
FAILING: Final = """\
import confluent_kafka


def test_an_order_is_stored(anabranch):
    topic = anabranch.topic("orders")
    anabranch.faults.add(api="Produce", topic=topic, hold=True)
    producer = confluent_kafka.Producer({"bootstrap.servers": anabranch.bootstrap_servers})
    producer.produce(topic, b"order-1")
    assert producer.flush(2) == 0
"""
REPORT_LINES: Final = 40
CLIENT_LOG: Final = re.compile(r"%\d\|")
"""A line that librdkafka prints, one for each attempt to connect while pytest ends; many on a slow machine."""
FROM_GO: Final = "first fault from Go"


class WalkFailed(Exception):
    """A step printed something else than the pages promise."""


@dataclass
class Walk:
    """The directory of the walk, the environment of its commands, and the times of its steps."""

    directory: Path
    checkout: Path
    binaries: Path
    times_s: dict[str, float] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def run(self, *words: str, status: int = 0, directory: Path | None = None, **environment: str) -> str:
        """Run a command to its end and return its output. Raises WalkFailed for another exit status."""
        ran = subprocess.run(
            [str(self.binaries / words[0]) if (self.binaries / words[0]).exists() else words[0], *words[1:]],
            cwd=directory or self.directory,
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        if ran.returncode != status:
            raise WalkFailed(f"{' '.join(words)}: exit status {ran.returncode}\n{ran.stdout}")
        return ran.stdout

    @property
    def environment(self) -> dict[str, str]:
        """The newcomer's: the virtual environment first, nothing of the developer's settings."""
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("ANABRANCH_", "PYTEST_"))}
        return {**kept, "PATH": f"{self.binaries}{os.pathsep}{os.environ['PATH']}"}

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure one step."""
        started = time.monotonic()
        print(f"{name} ...", flush=True)
        yield
        self.times_s[name] = time.monotonic() - started


@dataclass
class Running:
    """`anabranch up` with its addresses."""

    bootstrap: str
    control: str


@contextlib.contextmanager
def cluster(walk: Walk) -> Iterator[Running]:
    """Run `anabranch up` on free ports."""
    process = subprocess.Popen(
        [str(walk.binaries / "anabranch"), "up", "--port", "0", "--control", "127.0.0.1:0"],
        cwd=walk.directory,
        env=walk.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        ready = dict(re.findall(r"(\w+)=(\S+)", process.stdout.readline()))
        if not ready:
            raise WalkFailed("anabranch up printed no ready line")
        yield Running(ready["bootstrap"], ready["control"])
    finally:
        process.terminate()
        process.communicate(timeout=DEADLINE_S)


def expect(said: str, *patterns: str) -> None:
    """Raise WalkFailed unless the output has all these patterns, in this order."""
    place = 0
    for pattern in patterns:
        found = re.compile(pattern).search(said, place)
        if found is None:
            raise WalkFailed(f"expected {pattern!r} in:\n{said}")
        place = found.end()


def first_record(walk: Walk, running: Running) -> None:
    """A stock client stores a record, and the command line shows it."""
    (walk.directory / "greet.py").write_text(GREET)
    expect(walk.run("python", "greet.py", running.bootstrap), r"^stored$")
    said = walk.run("anabranch", "consume", "greetings", "--until-end", "--bootstrap-servers", running.bootstrap)
    expect(said, r"greetings-0@0 .* 42 +hello")


def first_failing_test(walk: Walk, _: Running) -> None:
    """A test fails, and its report names the rule and what the client was not answered, in less than 40 lines."""
    (walk.directory / "test_orders.py").write_text(FAILING)
    said = walk.run("python", *PYTEST[1:], "test_orders.py", status=1)
    expect(said, r"assert 1 == 0", r"rule-1 .*Produce", r"Produce")
    shown = said[said.index("assert 1 == 0") :].splitlines()
    lines = sum(not CLIENT_LOG.match(line) for line in shown)
    if lines >= REPORT_LINES:
        raise WalkFailed(f"the report has {lines} lines:\n{said}")


def first_resize(walk: Walk, running: Running) -> None:
    """A key moves to another partition and back, and a group receives its records in order."""
    at = ("--bootstrap-servers", running.bootstrap)
    walk.run("anabranch", "topics", "create", "orders", "--partitions", "4", *at)
    for value, partitions in (("created", 6), ("paid", 4), ("shipped", None)):
        walk.run("anabranch", "produce", "orders", value, "--key", "42", *at)
        if partitions is not None:
            walk.run("anabranch", "topics", "alter", "orders", "--partitions", str(partitions), *at)
    said = walk.run("anabranch", "consume", "orders", "--group", "billing", "--until-end", *at)
    expect(said, r"orders-0@0 .* created\n", r"orders-4@0 .* paid\n", r"orders-0@1 .* shipped\n")


def first_fault_from_go(walk: Walk, running: Running) -> None:
    """A Go test sets a fault by HTTP, and franz-go gets over it."""
    if shutil.which("go") is None:
        walk.skipped[FROM_GO] = "THERE IS NO GO"
        return
    folder = walk.checkout / "examples" / "testing" / "go"
    said = walk.run(
        "go",
        "test",
        "-count=1",
        "-v",
        "-run",
        "TestALeaderThatMovedIsAskedAgain",
        "./...",
        directory=folder,
        ANABRANCH_CONTROL=running.control,
    )
    expect(said, r"--- PASS: TestALeaderThatMovedIsAskedAgain")


STEPS: Final[dict[str, Callable[[Walk, Running], None]]] = {
    "first record": first_record,
    "first failing test explained": first_failing_test,
    "first resize": first_resize,
    FROM_GO: first_fault_from_go,
}


def install(walk: Walk) -> None:
    """Clone this checkout's commit, and install it as README.md says."""
    with walk.step("clone"):
        walk.run("git", "clone", "-q", str(ROOT), str(walk.checkout))
    with walk.step("install"):
        walk.run(sys.executable, "-m", "venv", str(walk.binaries.parent))
        walk.run("pip", "install", "-q", "-e", f"{walk.checkout}[control]", "confluent-kafka", "pytest")


def walk_through(directory: Path, *, here: bool, steps: Iterable[str] = STEPS) -> Walk:
    """Take these steps. `here` uses this checkout and the running interpreter's environment."""
    binaries = Path(sys.executable).parent if here else directory / ".venv" / "bin"
    walk = Walk(directory, ROOT if here else directory / "anabranch", binaries)
    if not here:
        install(walk)
    with contextlib.ExitStack() as stack:
        with walk.step("cluster ready"):
            running = stack.enter_context(cluster(walk))
        for name in steps:
            with walk.step(name):
                STEPS[name](walk, running)
    return walk


def table(walk: Walk) -> str:
    """The time of each step, and the time since the begin."""
    since_s, lines = 0.0, [f"{'step':<30} {'seconds':>8} {'since begin':>12}"]
    for name, took_s in walk.times_s.items():
        since_s += took_s
        why = walk.skipped.get(name)
        lines.append(
            f"{name:<30} {'-' if why else f'{took_s:.1f}':>8} {since_s:>12.1f}{f'  SKIPPED: {why}' if why else ''}"
        )
    return "\n".join(lines)


def main() -> None:
    """Walk in a temporary directory, and print the times."""
    parser = argparse.ArgumentParser(prog="python -m tests.newcomer", description=__doc__.partition(":")[0])
    parser.add_argument("--here", action="store_true", help="without clone and installation")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="newcomer-") as directory:
        try:
            print(table(walk_through(Path(directory), here=arguments.here)))
        except WalkFailed as error:
            sys.exit(f"the walk ended: {error}")


if __name__ == "__main__":
    main()
