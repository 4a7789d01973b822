"""Goal: what these pages show is so: their tests pass, rules are rules, mistakes are refused so."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from anabranch.faults.rule_file import read_rules
from anabranch.faults.validation import check

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/faults.md").read_text()


def blocks(language: str, page: str = PAGE) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


THEIR_APPLICATION = """\
import builtins

import confluent_kafka


def run_my_application(servers):
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    for invoice in (b"first", b"second"):
        producer.produce("invoices", invoice)
        assert producer.flush(60) == 0
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "billing"})
    consumer.commit(offsets=[confluent_kafka.TopicPartition("invoices", 0, 2)], asynchronous=False)
    consumer.close()


builtins.run_my_application = run_my_application
"""
"""What pages speak of and do not show."""


def run_pytest(directory: Path, *words: str) -> str:
    (directory / "conftest.py").write_text(THEIR_APPLICATION)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("page", "tests"),
    [
        ("docs/faults.md", 5),
        ("docs/testing.md", 6),
        ("docs/clock.md", 3),
        ("docs/state.md", 4),
        ("docs/control.md", 3),
        ("docs/proxy.md", 1),
    ],
)
def test_its_tests_pass(page: str, tests: int, tmp_path: Path) -> None:
    """Those in a container are run where there is an engine: `tests/anabranch/testing/test_containers.py`."""
    brokers = "anabranch_brokers = 3\nanabranch_journal = 1000\n" if page == "docs/control.md" else ""
    (tmp_path / "pytest.ini").write_text(f"[pytest]\naddopts = --strict-markers\n{brokers}")
    shown = [code for code in blocks("python", (ROOT / page).read_text()) if "containers" not in code]
    for number, code in enumerate(shown):
        (tmp_path / f"test_{number}.py").write_text(code)
    told = run_pytest(tmp_path)
    assert f"{tests} passed" in told, told


def test_its_settings_are_settings(tmp_path: Path) -> None:
    (settings,) = blocks("ini", (ROOT / "docs/testing.md").read_text())
    (tmp_path / "pytest.ini").write_text(settings)
    (tmp_path / "test_settings.py").write_text(
        """def test_settings(anabranch):
    assert len(anabranch.nodes) == 3
    topic = anabranch.topic("orders", partitions=-1)
    assert len(anabranch.control.state()["topics"][0]["partitions"]) == 4
    assert anabranch.journal.count() >= 0
"""
    )
    told = run_pytest(tmp_path, "--strict-config")
    assert "1 passed" in told, told


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A cluster of the page's, with clients that produce and consume all the time."""
    words = [sys.executable, "-m", "anabranch.cli.main", "up", "--port", "0", "--control", "127.0.0.1:0"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=env) as process:
        stop = threading.Event()
        try:
            assert process.stdout is not None
            told = dict(one.split("=", 1) for one in process.stdout.readline().split()[1:])
            working = threading.Thread(target=traffic, args=(told["bootstrap"], stop))
            working.start()
            yield told["bootstrap"], told["control"]
            stop.set()
            working.join(60)
        finally:
            stop.set()
            process.terminate()
            process.wait(60)


def traffic(servers: str, stop: threading.Event) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "log_level": 0})
    settings = {"bootstrap.servers": servers, "group.id": "reads", "auto.offset.reset": "earliest", "log_level": 0}
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition("orders", 0, 0)])
    while not stop.is_set():
        producer.produce("orders", b"x")
        producer.poll(0)
        consumer.poll(0.05)
    consumer.close()


def test_what_is_typed_is_answered_so(cluster: tuple[str, str]) -> None:
    """Each line of the page's sessions, in their order: those of `anabranch`, and those of curl as what it asks."""
    _, control = cluster
    for session in blocks("console"):
        for typed, told in re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", session, re.MULTILINE):
            program, *words = shlex.split(typed)
            assert program in ("anabranch", "curl"), typed
            if program == "curl":
                assert not told
                ask(control, words)
                continue
            env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "ANABRANCH_CONTROL": control}
            done = subprocess.run(
                [sys.executable, "-m", "anabranch.cli.main", *words],
                env=env,
                capture_output=True,
                text=True,
                check=False,
            )
            seen = [NUMBERS.sub("n", line).rstrip() for line in (done.stdout + done.stderr).splitlines()]
            expected = [NUMBERS.sub("n", line).rstrip() for line in told.splitlines()]
            for line, one in zip(expected, seen, strict=True):
                assert one.startswith(line[:-3]) if line.endswith("...") else one == line, typed


NUMBERS = re.compile(r"\b\d+ of \d+\b")


def ask(control: str, words: list[str]) -> None:
    """What curl does with these words."""
    method, data, url = "GET", None, ""
    rest = iter(words)
    for word in rest:
        if word == "-X":
            method = next(rest)
        elif word == "-d":
            data = next(rest).encode()
        else:
            url = word.replace("localhost:9190", control)
    with urllib.request.urlopen(urllib.request.Request(url, data, method=method)) as answer:
        assert answer.status == 200, words


def test_its_files_hold_rules(tmp_path: Path) -> None:
    for content in blocks("toml"):
        (tmp_path / "rules.toml").write_text(content)
        for rule in read_rules(tmp_path / "rules.toml"):
            check(rule, (1, 2, 3))
