"""Kafka's clients of 2016 (0.9.0.1, 0.10.0.1), which write and check a wrong lz4 header checksum.

Their jars are not part of this project: point ANABRANCH_OLD_KAFKA_JARS at directories, one per version and with a colon
between them, that Maven has filled:

    mvn dependency:copy-dependencies -DoutputDirectory=...    # of a project that depends on kafka-clients 0.9.0.1
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from anabranch.spark_jobs import java
from tests.interop.test_old_clients import CODECS, COUNT
from tests.interop.test_old_clients import servers as servers

pytestmark = [pytest.mark.interop, pytest.mark.kafka_jars]

VARIABLE = "ANABRANCH_OLD_KAFKA_JARS"
DIRECTORIES = [Path(one) for one in os.environ.get(VARIABLE, "").split(":") if one]


@pytest.mark.parametrize("directory", DIRECTORIES or [None], ids=lambda one: one.name if one else "absent")
def test_old_java_client_reads_and_writes_every_codec(servers: str, directory: Path | None) -> None:
    if directory is None or not list(directory.glob("kafka-clients-0.*.jar")) or java.why_missing(module=java.COMPILER):
        pytest.skip(f"NOT TRIED WITH KAFKA'S OLD CLIENTS: {VARIABLE} names no kafka-clients 0.x, or there is no JDK")
    program = Path(__file__).with_name("OldClient.java")
    command = [
        java.find(module=java.COMPILER).command,
        "-XX:TieredStopAtLevel=1",
        "-cp",
        f"{directory}/*",
        str(program),
        servers,
        directory.name,
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert ran.stdout.split("\n")[:-1] == [f"{codec} {COUNT}" for codec in CODECS], ran.stderr
