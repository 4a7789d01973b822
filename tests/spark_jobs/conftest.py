"""One cluster and one Spark for all tests of this directory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from anabranch.spark_jobs import audit
from anabranch.spark_jobs.java import why_missing
from anabranch.spark_jobs.session import AuditSpark
from tests.spark_jobs.live import LiveCluster


def kafka_jars() -> list[str]:
    """Spark's Kafka connector, if it is installed."""
    directory = os.environ.get("ANABRANCH_SPARK_KAFKA_JARS")
    return sorted(map(str, Path(directory).glob("*.jar"))) if directory else []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts a Spark beside the shared one goes first, so that both start at the same time."""
    items.sort(key=lambda item: "doomed" not in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def live() -> Iterator[LiveCluster]:
    """Three brokers; tests that stop one start a cluster of their own."""
    with LiveCluster(3) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session like the audit's, but without a minimal pause between batches."""
    if why_missing() is not None:
        pytest.skip(f"NO SPARK: {why_missing()}")
    conf = {"spark.jars": ",".join(kafka_jars())} if kafka_jars() else {}
    with pytest.MonkeyPatch.context() as patch, AuditSpark(tmp_path_factory.mktemp("spark"), conf=conf) as session:
        patch.setattr(audit, "TRIGGER", "0 seconds")
        yield session
