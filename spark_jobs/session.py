"""Starts Spark for the audit: locally, on a cluster, or from `spark-submit`.

This module starts the JVM instead of `SparkSession.builder`, because only its starter controls its output: Spark, its
Python workers and their tracebacks write to `spark.log` in the output directory, never to the terminal. It starts
quickly, and ends with this process. Under `spark-submit` the JVM already runs, with its own output.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from anabranch.spark_jobs import java, shipping
from anabranch.spark_jobs.source import AnabranchSource

STOP_TIMEOUT_S: Final = 3.0
LOCAL: Final = "local[*]"
TASK_FAILURES: Final = 4
LOCAL_PARTITIONS_MAX: Final = 8
CLUSTER_PARTITIONS: Final = "8"
"""The number of state partitions; Spark keeps that of the first checkpoint."""
STATE_STORE: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CHECKPOINT_FILES: Final = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


class SparkMissing(RuntimeError):
    """Spark cannot start on this machine; the message has the remedy."""


class AuditSpark:
    """One JVM and its session: `with AuditSpark(directory) as session`.

    `conf` has the user's settings; on a cluster they size the executors.
    """

    def __init__(
        self,
        directory: Path,
        *,
        master: str = LOCAL,
        conf: Mapping[str, str] | None = None,
        on_step: Callable[[str], None] | None = None,
    ) -> None:
        """Create a session that is not started; `on_step` is called with each step of the start, in words."""
        self._on_step = on_step or (lambda _: None)
        self._directory = directory
        self._master = master
        self._conf = dict(conf or {})
        self._jvm: subprocess.Popen[bytes] | None = None
        self._session: SparkSession | None = None

    @property
    def log_path(self) -> Path:
        """The file with all output of the JVM and the Python workers."""
        return self._directory / "spark.log"

    @property
    def is_local(self) -> bool:
        """Whether everything runs on this machine, in one JVM."""
        return self._master.startswith("local")

    def start(self) -> SparkSession:
        """Start the JVM and the session. Raises SparkMissing without a suitable Java."""
        conf = self._settings()
        if is_submitted():
            spark_conf = SparkConf()
            for name, value in conf.items():
                spark_conf.setIfMissing(name, value)  # options of spark-submit take precedence
            SparkContext(conf=spark_conf)
        else:
            self._start_jvm(conf)
        self._on_step("opens a session")
        session: SparkSession = SparkSession.builder.getOrCreate()
        self._session = session
        session.dataSource.register(AnabranchSource)
        return session

    def _start_jvm(self, conf: Mapping[str, str]) -> None:
        try:
            runtime = java.find()
        except java.JavaMissing as error:
            raise SparkMissing(f"Spark cannot run: {error}") from None
        if self.is_local:
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ["PYSPARK_PYTHON"] = conf.get("spark.pyspark.python", sys.executable)
        os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        self._temporary.mkdir(parents=True, exist_ok=True)
        spark_conf = SparkConf(loadDefaults=False).setAll(sorted(conf.items()))
        self._on_step(f"starts its JVM, {runtime.name}")
        gateway = self._launch(spark_conf, runtime)
        self._jvm = gateway.proc
        self._on_step("starts its scheduler and its block manager")
        context = SparkContext(conf=spark_conf, gateway=gateway)
        # The JVM closes this server's connection when it ends; that error needs no traceback on the terminal.
        accumulators: Any = context._accumulatorServer
        accumulators.handle_error = lambda *_: None
        logging.getLogger().addFilter(_is_not_raised)
        context.setLogLevel("WARN")
        if not self.is_local:
            context.addPyFile(str(shipping.pack(self._temporary)))

    def stop(self) -> None:
        """End the JVM and its Python workers. Checkpoints stay valid."""
        if self._session is not None and (is_submitted() or not self.is_local):
            self._session.stop()  # otherwise the cluster would keep the executors until a timeout
        self._session = None
        if self._jvm is not None:
            self._jvm.terminate()
            try:
                self._jvm.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._jvm.kill()
                self._jvm.wait()
            self._jvm = None
        shutil.rmtree(self._temporary, ignore_errors=True)

    def __enter__(self) -> SparkSession:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _temporary(self) -> Path:
        return self._directory / "spark-temporary"

    def _launch(self, conf: SparkConf, runtime: java.Java) -> Any:
        launch: Any = java_gateway.launch_gateway
        with self.log_path.open("ab") as log_file, _java_home(runtime.home_for_spark(self._temporary)):
            log_file.write(f"{runtime}\n".encode())
            log_file.flush()
            offset_bytes = log_file.tell()
            try:
                return launch(conf, popen_kwargs={"stdout": log_file, "stderr": log_file})
            except PySparkRuntimeError:
                log_lines = self.log_path.read_bytes()[offset_bytes:].decode(errors="replace").splitlines()
                last = log_lines[-1] if log_lines else "it printed nothing"
                why = next((line for line in log_lines if "Error" in line), last)
                text = f"{runtime} could not run Spark: {why.strip()}"
                raise SparkMissing(text) from None

    def _settings(self) -> dict[str, str]:
        """Return Spark's settings: the audit's, this machine's, and the user's over them."""
        settings = {
            "spark.app.name": "anabranch-audit",
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
            # A row of a copy is a run of up to a thousand events, 36 KB and its keys: Spark's default of 4096 does not
            # fit into the driver's memory.
            "spark.sql.parquet.columnarReaderBatchSize": "256",
            # Only some workers would get it: that means two daemons, each with pandas and all preloaded modules.
            "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
            "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
            "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
            # A bucket is one row; counting rows would read all of it once more at each write.
            "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
        }
        if is_submitted():
            return {**settings, "spark.sql.shuffle.partitions": CLUSTER_PARTITIONS, **self._conf}
        settings |= {
            "spark.master": _with_retries(self._master),
            "spark.ui.showConsoleProgress": "false",
            **self._of_driver(),
        }
        settings |= self._of_this_machine() if self.is_local else {"spark.sql.shuffle.partitions": CLUSTER_PARTITIONS}
        return {**settings, **self._conf}

    def _of_driver(self) -> dict[str, str]:
        self._directory.mkdir(parents=True, exist_ok=True)
        logging = self._directory / "log4j2.properties"
        logging.write_text(LOG4J)
        temporary = str(self._temporary.absolute())
        options = [
            f"-Dlog4j2.configurationFile={logging.absolute().as_uri()}",
            f"-Djava.io.tmpdir={temporary}",
            # For a short run on few cores the optimizing compiler and the parallel collector cost more than they save.
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
        ]
        return {
            "spark.ui.enabled": "false",
            "spark.driver.memory": "768m",
            "spark.driver.extraJavaOptions": " ".join(f'"{option}"' for option in options),
            "spark.local.dir": temporary,
            "spark.sql.warehouse.dir": str((self._directory / "warehouse").absolute()),
        }

    def _of_this_machine(self) -> dict[str, str]:
        named = self._master.removeprefix("local").strip("[]")
        cores = int(named) if named.isdigit() else 1 if not named else os.cpu_count() or 1
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.python.daemon.module": "anabranch.spark_jobs.daemon",
            # The default one starts the processes `chmod` and `readlink` for every file: a third of a small batch's
            # time.
            "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINT_FILES,
            "spark.sql.shuffle.partitions": str(min(cores, LOCAL_PARTITIONS_MAX)),
        }


def _is_not_raised(record: logging.LogRecord) -> bool:
    """Filter Py4J's log: drop errors that it also raises, and those of batches ended on purpose."""
    return record.msg != "Exception while sending command."


def is_submitted() -> bool:
    """Whether `spark-submit` started this process, so that the JVM already runs."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _with_retries(master: str) -> str:
    """Return the master with retries, which a local Spark lacks by default, for tasks whose Python worker dies."""
    return f"{master[:-1]},{TASK_FAILURES}]" if master.startswith("local[") and "," not in master else master


@contextlib.contextmanager
def _java_home(home: Path) -> Iterator[None]:
    """Set JAVA_HOME while the block runs: Spark's launcher reads it only from this process's environment."""
    before = os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = str(home)
    try:
        yield
    finally:
        if before is None:
            del os.environ["JAVA_HOME"]
        else:
            os.environ["JAVA_HOME"] = before


LOG4J: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n
"""
