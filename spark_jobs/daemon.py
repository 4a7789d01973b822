"""Where Spark forks its Python workers from: PySpark's own daemon with everything that a worker needs already imported.

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
    """Import what workers use, and keep the collector's hands off it, so that forks share the pages."""
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    preload()
    daemon.manager()
