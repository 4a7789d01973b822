"""The process from which Spark forks its Python workers: PySpark's daemon, with all that a worker needs imported.

Without it each of the workers imports pandas, PyArrow and the protocol for itself, a second of processor time apiece,
just when the first batch is waiting for them. Named by `spark.python.daemon.module`.
"""

from __future__ import annotations

import gc
import importlib
from typing import Final

from pyspark import daemon

PRELOADED: Final = (
    "numpy",
    "pandas",
    "pyarrow",
    "pyspark.worker",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.streaming.stateful_processor_api_client",
    "pyspark.sql.streaming.proto.StateMessage_pb2",
    "pyspark.sql.worker.plan_data_source_read",
    "anabranch.spark_jobs.audit",
)


def preload() -> None:
    """Import what workers use, and exempt it from garbage collection, so that the forks share its memory."""
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    preload()
    daemon.manager()
