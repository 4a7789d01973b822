"""A receiver of client metrics, which Kafka needs to accept them; compiled if there is a compiler."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from anabranch.spark_jobs import java

SOURCE: Final = Path(__file__).with_name("TelemetryReceiver.java")
APIS: Final = frozenset({"GetTelemetrySubscriptions", "PushTelemetry"})
"""Those that clients are told of where there is one."""


def why_absent() -> str | None:
    """What is missing to have one; None: nothing."""
    return java.why_missing(module=java.COMPILER)


def build(jars: str, into: Path) -> None:
    """Compile it for the Kafka of these jars."""
    compiler = java.find(module=java.COMPILER).home / "bin/javac"
    subprocess.run([compiler, "-cp", f"{jars}/*", "-d", into, SOURCE], check=True, timeout=100)
