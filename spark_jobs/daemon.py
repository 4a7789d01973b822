"""The process from which Spark forks its Python workers: PySpark's daemon with a worker's modules preloaded.

Otherwise each worker imports pandas, PyArrow and the protocol itself, a second of processor time apiece, while the
first batch waits for them. Configured by `spark.python.daemon.module`.
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
    """Import the workers' modules, and exempt them from garbage collection, so that the forks share their memory."""
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    preload()
    daemon.manager()
