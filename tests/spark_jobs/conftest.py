"""One cluster and one Spark for all tests of this directory: either takes longer to start than most tests to run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark_jobs.session import LocalSpark, java
from tests.spark_jobs.live import LiveCluster


@pytest.fixture(scope="session")
def live() -> Iterator[LiveCluster]:
    """Three brokers; tests that stop one start a cluster of their own."""
    with LiveCluster(3) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session as the audit uses it."""
    if java() is None:
        pytest.skip("NO SPARK: there is no Java on this machine")
    with LocalSpark(tmp_path_factory.mktemp("spark")) as session:
        yield session
