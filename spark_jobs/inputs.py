"""Reads topics as DataFrames, with this project's source or Spark's Kafka connector: same columns, same verdict.

The connector is a separate package (`CONNECTOR`: `--conf spark.jars.packages=...`, or files in `spark.jars`). It reads
in the JVM, and fails a query whose topic loses a partition, even one that was read to its end and merged away, unless
`fail_on_data_loss` is off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from anabranch.spark_jobs.scope import READ_COMMITTED
from anabranch.spark_jobs.source import FORMAT
from anabranch.spark_jobs.source_options import OPEN, Client

CONNECTOR: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
"""The newest published version that is tested with the pinned PySpark."""
KAFKA: Final = "kafka"
SOURCES: Final = (FORMAT, KAFKA)
FAIL_ON_DATA_LOSS: Final = "failOnDataLoss"
ISOLATION_LEVEL: Final = "kafka.isolation.level"
_NOT_FOUND: Final = "Failed to find data source: kafka"


class SourceMissing(RuntimeError):
    """Spark's Kafka connector is not on the class path; the message says how to get it."""


def stream(
    session: SparkSession,
    servers: str,
    topics: Sequence[str],
    *,
    headers: bool,
    rows: int,
    source: str = FORMAT,
    fail_on_data_loss: bool = True,
    isolation_level: str = READ_COMMITTED,
    client: Client = OPEN,
) -> DataFrame:
    """Stream the records of topics from their beginning, `rows` per batch. Raises SourceMissing."""
    reader = session.readStream.format(source).option("maxOffsetsPerTrigger", rows)
    reader = reader.option(FAIL_ON_DATA_LOSS, fail_on_data_loss).option(ISOLATION_LEVEL, isolation_level)
    return _load(reader, servers, topics, headers, client)


def batch(
    session: SparkSession,
    servers: str,
    topics: Sequence[str],
    *,
    source: str = FORMAT,
    fail_on_data_loss: bool = True,
    isolation_level: str = READ_COMMITTED,
    client: Client = OPEN,
) -> DataFrame:
    """Read the current records of topics. Raises SourceMissing."""
    reader = session.read.format(source)
    reader = reader.option(FAIL_ON_DATA_LOSS, fail_on_data_loss).option(ISOLATION_LEVEL, isolation_level)
    return _load(reader, servers, topics, True, client)


def _load(reader: Any, servers: str, topics: Sequence[str], headers: bool, client: Client) -> DataFrame:
    prepared = (
        reader.option("kafka.bootstrap.servers", servers)
        .option("subscribe", ",".join(topics))
        .option("startingOffsets", "earliest")
        .option("includeHeaders", str(headers).lower())
        .options(**{f"kafka.{name}": value for name, value in client.items()})
    )
    try:
        frame: DataFrame = prepared.load()
    except AnalysisException as error:
        if _NOT_FOUND not in str(error):
            raise
        raise SourceMissing(
            f"Spark's Kafka connector is not installed: --conf spark.jars.packages={CONNECTOR} downloads it; "
            "--conf spark.jars=FILE,... uses local files"
        ) from None
    return frame
