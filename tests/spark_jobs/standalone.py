"""A standalone Spark cluster of this machine: master and workers as processes of PySpark.

Their interpreter is one that does not have our packages: what executors run was shipped to them.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pyspark

from anabranch.spark_jobs import java

HOME = Path(pyspark.__file__).parent
TIMEOUT_S = 60.0
DAEMON_MEMORY = "192m"
WORKER_MEMORY = "640m"
"""Of the executors of a worker: one of 512 MB fits."""
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

_bound = re.compile(r"Starting Spark master at (spark://\S+)")
_registered = re.compile(r"Successfully registered with master")


@dataclass
class Worker:
    """A worker and whatever executors it started."""

    process: subprocess.Popen[bytes]
    log_path: Path

    @property
    def executors(self) -> list[int]:
        """The pids of its executors' JVMs."""
        return [pid for pid, parent, line in _processes() if parent == self.process.pid and "Backend" in line]

    def kill(self) -> None:
        """The machine fails: the worker, its executors, and their Python workers."""
        doomed = {self.process.pid}
        while True:
            more = {pid for pid, parent, _ in _processes() if parent in doomed} - doomed
            if not more:
                break
            doomed |= more
        for pid in doomed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


@dataclass
class StandaloneCluster:
    """`with StandaloneCluster(directory, workers=2) as cluster: cluster.url`"""

    directory: Path
    workers: int = 2
    url: str = ""
    running: list[Worker] = field(default_factory=list)
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def __enter__(self) -> Self:
        try:
            _, log_path = self._start("master", "org.apache.spark.deploy.master.Master", "--port", "0")
            self.url = said(log_path, _bound).group(1)
            for number in range(self.workers):
                self.running.append(self._start_worker(number))
            for worker in self.running:
                said(worker.log_path, _registered)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def python(self) -> Path:
        """This interpreter, with everything that is installed beside it but what `.pth` files name: us."""
        script = self.directory / "python"
        if not script.exists():
            installed = sysconfig.get_path("purelib")
            script.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{installed}" exec {sys.executable} -S "$@"\n')
            script.chmod(0o755)
        return script

    def _start_worker(self, number: int) -> Worker:
        words = ("--cores", "1", "--memory", WORKER_MEMORY, "--work-dir", str(self.directory / f"work-{number}"))
        process, log_path = self._start(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *words, self.url)
        return Worker(process, log_path)

    def _start(self, name: str, main: str, *words: str) -> tuple[subprocess.Popen[bytes], Path]:
        log_path = self.directory / f"{name}.log"
        with log_path.open("wb") as log_file:
            process = subprocess.Popen(
                [str(HOME / "bin" / "spark-class"), main, "--host", "127.0.0.1", "--webui-port", "0", *words],
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                cwd=self.directory,
                start_new_session=True,
                env=environment(self.directory),
            )
        self._stack.callback(stop, process)
        return process, log_path


def environment(directory: Path) -> dict[str, str]:
    """For Spark's own processes: small ones, of this machine only."""
    return {
        **os.environ,
        "JAVA_HOME": str(java.find().home_for_spark(directory)),
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": DAEMON_MEMORY,
        "SPARK_DAEMON_JAVA_OPTS": QUICK,
        "SPARK_LAUNCHER_OPTS": QUICK,
        "SPARK_MASTER_WEBUI_PORT": "0",
    }


def said(log_path: Path, pattern: re.Pattern[str]) -> re.Match[str]:
    """Wait for a process's output."""
    deadline_s = time.perf_counter() + TIMEOUT_S
    while (found := pattern.search(log_path.read_text(errors="replace"))) is None:
        assert time.perf_counter() < deadline_s, log_path.read_text(errors="replace")[-2000:]
        time.sleep(0.05)
    return found


def stop(process: subprocess.Popen[bytes]) -> None:
    """It, and its executors with it."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _processes() -> Iterator[tuple[int, int, str]]:
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            stat = (directory / "stat").read_text()
            line = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            yield int(directory.name), int(stat[stat.rindex(")") + 2 :].split()[1]), line


def child(parent: int, word: str) -> int:
    """The process that one has started with this word in its command line."""
    (found,) = (pid for pid, its_parent, line in _processes() if its_parent == parent and word in line)
    return found
