"""A local Spark that starts quickly, keeps its words to a log file, and takes its JVM with it when it stops.

The JVM is started here rather than by `SparkSession.builder`, because only its starter can say where its output goes:
Spark, its Python workers and their tracebacks write to `spark.log` in the output directory, never to the terminal.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from spark_jobs.source import AnabranchSource

STOP_TIMEOUT_S: Final = 3.0
STATE_STORE: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class SparkMissing(RuntimeError):
    """Spark cannot start on this machine; the text says what to do about it."""


class LocalSpark:
    """One JVM and its session: `with LocalSpark(directory) as session`."""

    def __init__(self, directory: Path, *, cores: int = 2) -> None:
        self._directory = directory
        self._cores = cores
        self._jvm: subprocess.Popen[bytes] | None = None

    @property
    def log_path(self) -> Path:
        """Everything that the JVM and the Python workers say."""
        return self._directory / "spark.log"

    def start(self) -> SparkSession:
        """Start the JVM and the session. `SparkMissing` if there is no Java that can run it."""
        if java() is None:
            raise SparkMissing("no Java was found: install Java 17 or later, or set JAVA_HOME")
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        self._temporary.mkdir(parents=True, exist_ok=True)
        conf = SparkConf(loadDefaults=False).setAll(list(self._settings().items()))
        gateway = self._launch(conf)
        self._jvm = gateway.proc
        context = SparkContext(conf=conf, gateway=gateway)
        # The JVM closes this server's connection when it ends, which is no error worth a traceback on the terminal.
        accumulators: Any = context._accumulatorServer
        accumulators.handle_error = lambda *_: None
        session: SparkSession = SparkSession.builder.getOrCreate()
        context.setLogLevel("WARN")
        session.dataSource.register(AnabranchSource)
        return session

    def stop(self) -> None:
        """End the JVM, and with it all its Python workers. What was checkpointed stays valid."""
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

    def _launch(self, conf: SparkConf) -> Any:
        launch: Any = java_gateway.launch_gateway
        with self.log_path.open("ab") as log_file:
            begun_bytes = log_file.tell()
            try:
                return launch(conf, popen_kwargs={"stdout": log_file, "stderr": log_file})
            except PySparkRuntimeError:
                told = self.log_path.read_bytes()[begun_bytes:].decode(errors="replace").splitlines()
                why = next((line for line in told if "Error" in line), told[-1] if told else "it said nothing")
                text = f"Java could not run Spark, which needs Java 17 or later: {why.strip()}"
                raise SparkMissing(text) from None

    def _settings(self) -> dict[str, str]:
        logging = self._directory / "log4j2.properties"
        logging.write_text(LOG4J)
        temporary = str(self._temporary.absolute())
        options = [
            f"-Dlog4j2.configurationFile={logging.absolute().as_uri()}",
            f"-Djava.io.tmpdir={temporary}",
            # A short life on few cores: the optimizing compiler and the parallel collector cost more than they give.
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
        ]
        return {
            "spark.master": f"local[{self._cores}]",
            "spark.app.name": "anabranch-audit",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "768m",
            "spark.driver.extraJavaOptions": " ".join(f'"{option}"' for option in options),
            "spark.local.dir": temporary,
            "spark.python.daemon.module": "spark_jobs.daemon",
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
            "spark.sql.shuffle.partitions": str(self._cores),
            "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
            "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
            "spark.sql.warehouse.dir": str((self._directory / "warehouse").absolute()),
        }


def java() -> str | None:
    """The Java that Spark's launcher would run."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(str(Path(home) / "bin" / "java")) if home else shutil.which("java")


LOG4J: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n
"""
