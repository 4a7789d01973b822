"""The peers of Streams: this package, Faust, Quix Streams and Kafka Streams, each a process with the same application.

`peers` makes what they need under build/streams-peers: a virtual environment with the two Python libraries, which are
no dependencies of this project, and the compiled Java program. A peer that cannot be made has a reason, which is
printed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anabranch.spark_jobs import java

AT_LEAST_ONCE: Final = "at_least_once"
EXACTLY_ONCE: Final = "exactly_once"
GUARANTEES: Final = (AT_LEAST_ONCE, EXACTLY_ONCE)
OWN: Final = "anabranch"
FAUST: Final = "Faust"
QUIX: Final = "Quix Streams"
JAVA: Final = "Kafka Streams"
JAVA_WITHOUT_CACHE: Final = "Kafka Streams, no cache"
APPLICATIONS: Final = Path(__file__).parent
ROOT: Final = APPLICATIONS.parent.parent
BUILD: Final = ROOT / "build" / "streams-peers"
LIBRARIES: Final = ("faust-streaming==0.15.3", "quixstreams==3.28.1")
JARS: Final = "ANABRANCH_KAFKA_JARS"
CACHE_BYTES: Final = 10 * 1024 * 1024
"""Kafka Streams' default."""
STOP_S: Final = 30.0
TAIL_BYTES: Final = 2000
PROCESS_CLOCK: Final = 2
"""The kind of Linux' clocks of other processes, as of `clock_getcpuclockid`: of all threads, also ended ones."""
Command = Callable[[Sequence[str]], list[str]]


@dataclass(frozen=True)
class StreamsPeer:
    """How to run the applications with one library."""

    name: str
    command: Command
    """Makes the command line of the words in `stream_applications`."""
    absent: str = ""
    """Why it cannot run on this machine."""


OWN_PEER: Final = StreamsPeer(OWN, lambda words: [sys.executable, "-m", "benchmarks.stream_applications.own", *words])


def peers() -> list[StreamsPeer]:
    """Make all peers, this package's first."""
    no_python, no_java = _make_environment(), _compile()
    python = str(_python())
    return [
        OWN_PEER,
        StreamsPeer(FAUST, lambda words: [python, str(APPLICATIONS / "faust_application.py"), *words], no_python),
        StreamsPeer(QUIX, lambda words: [python, str(APPLICATIONS / "quix_application.py"), *words], no_python),
        StreamsPeer(JAVA, lambda words: [*_java_command(), *words, str(CACHE_BYTES)], no_java),
        StreamsPeer(JAVA_WITHOUT_CACHE, lambda words: [*_java_command(), *words, "0"], no_java),
    ]


def _python() -> Path:
    return BUILD / "venv" / "bin" / "python"


def _make_environment() -> str:
    """Install the two libraries, once for each of their versions. Returns why that failed, or ""."""
    mark = BUILD / "installed"
    wanted = "\n".join(LIBRARIES)
    if mark.exists() and mark.read_text() == wanted:
        return ""
    venv.create(BUILD / "venv", with_pip=True, clear=True)
    ran = subprocess.run([_python(), "-m", "pip", "install", "-q", *LIBRARIES], capture_output=True, text=True)
    if ran.returncode:
        return f"pip could not install {' and '.join(LIBRARIES)}: {ran.stderr.strip()[-300:]}"
    mark.write_text(wanted)
    return ""


def _compile() -> str:
    """Compile the Java program. Returns why that failed, or ""."""
    if reason := java.why_missing(module=java.COMPILER):
        return reason
    jars = os.environ.get(JARS, "")
    if not jars or not list(Path(jars).glob("kafka-streams-4*.jar")):
        return f"{JARS}={jars!r} has no jar of Kafka Streams 4"
    compiler = Path(java.find(module=java.COMPILER).command).with_name("javac")
    where = ["-cp", f"{jars}/*", "-d", str(BUILD / "java")]
    ran = subprocess.run([compiler, *where, APPLICATIONS / "StreamsApplication.java"], capture_output=True, text=True)
    return f"javac: {ran.stderr[-300:]}" if ran.returncode else ""


def _java_command() -> list[str]:
    path = f"{os.environ[JARS]}/*:{BUILD / 'java'}"
    return [java.find(module=java.COMPILER).command, "-cp", path, "StreamsApplication"]


class StreamsProcess:
    """One running instance of an application."""

    def __init__(self, peer: StreamsPeer, words: Sequence[str], log_path: Path) -> None:
        self.name = peer.name
        self._log_path = log_path
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                peer.command(words),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=log_path.parent,  # Faust leaves files in the working directory
                env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))},
            )

    @property
    def processor_s(self) -> float:
        """The processor time of its threads so far, in user and system mode."""
        return time.clock_gettime(~self._process.pid << 3 | PROCESS_CLOCK)

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def pause(self) -> None:
        """Stop its threads, until `resume`."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue after `pause`."""
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it with SIGTERM, and with SIGKILL if it takes too long."""
        self.resume()
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def log_tail(self) -> str:
        """The end of what it has written."""
        return self._log_path.read_bytes()[-TAIL_BYTES:].decode(errors="replace")


def remove_state(directory: Path) -> None:
    """Delete an instance's state directory, and make it anew."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
