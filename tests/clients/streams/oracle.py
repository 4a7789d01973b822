"""Kafka Streams' own classes, if their jars are available (see test_kafka_tools.py)."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from anabranch.spark_jobs import java

VARIABLE = "ANABRANCH_KAFKA_JARS"
SHARED_MEMORY = "/dev/shm"
"""Where Java's temporary files are, if possible: Kafka Streams flushes the files of each test driver to the device."""
GOLDEN = Path(__file__).parent / "golden" / "kafka-streams-3.9.jsonl"


def jars_or_skip() -> Path:
    """Return the directory of Kafka's jars, or skip the test with a message that names the variable."""
    given = os.environ.get(VARIABLE, "")
    if not given or not list(Path(given).glob("kafka-streams-3.9*.jar")) or java.why_missing(module=java.COMPILER):
        pytest.skip(f"NOT COMPARED WITH KAFKA STREAMS: {VARIABLE}={given!r} has no kafka-streams 3.9 jar, or no JDK")
    return Path(given)


def driver_jars_or_skip() -> Path:
    """The directory of Kafka's jars, if it has the test driver of a Kafka Streams 4, too."""
    given = os.environ.get(VARIABLE, "")
    needed = "kafka-streams-test-utils-4*.jar"
    if not given or not list(Path(given).glob(needed)) or java.why_missing(module=java.COMPILER):
        pytest.skip(f"NOT COMPARED WITH KAFKA STREAMS: {VARIABLE}={given!r} has no {needed}, or no JDK")
    return Path(given)


def ask(jars: Path, mode: str, questions: Iterable[Any] = (), *, program: str = "StreamsOracle.java") -> list[Any]:
    """What the Java side prints, a JSON value per line."""
    options = ("-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
    memory = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="kafka-streams-", dir=memory) as temporary:
        ran = subprocess.run(
            [
                java.find(module=java.COMPILER).command,
                *options,
                f"-Djava.io.tmpdir={temporary}",
                "-cp",
                f"{jars}/*",
                str(Path(__file__).with_name(program)),
                mode,
            ],
            input="".join(json.dumps(question) + "\n" for question in questions),
            capture_output=True,
            encoding="utf-8",
            timeout=900,
        )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
