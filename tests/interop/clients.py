"""The clients of the matrix: how each runs, what it needs, and what it lacks.

`python -m tests.interop.clients` installs what `make interop` needs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from anabranch.spark_jobs import java
from tests.interop.driving import Driver

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CACHE = ROOT / "build" / "interop"
"""What `make interop` installs and builds."""
JARS = "ANABRANCH_KAFKA_JARS"
JAVA_NEEDS = ("kafka-clients", "kafka-streams")
"""The driver is compiled as one program: without Streams none of its commands runs."""

OLD_FORMATS = "old formats"
COOPERATIVE = "cooperative"
STATIC = "static members"
TRANSACTIONS = "transactions"
ADMIN = "admin"
RESIZE = "resize"
TOKEN = "OAUTHBEARER by a token,"
TOKEN_ENDPOINT = "OAUTHBEARER by an endpoint,"
ALL_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True)
class Client:
    """One client."""

    name: str
    command: Sequence[str]
    lacks: Mapping[str, str] = field(default_factory=dict)
    """Capability -> why it has not got it."""
    codecs: Sequence[str] = ALL_CODECS
    absent: str = ""
    """What is missing on this machine."""
    python: bool = False
    """Its tests belong to `make test`."""
    aborts: bool = True

    def run(self, command: str, **arguments: object) -> Driver:
        """Start a driver."""
        return Driver(self.command, command, **arguments)


def _python(module: str) -> list[str]:
    return [sys.executable, "-m", f"tests.interop.drivers.{module}"]


def _missing(*programs: str) -> str:
    missing = [program for program in programs if shutil.which(program) is None]
    return f"no {', '.join(missing)} here" if missing else ""


def _kafkajs() -> str:
    if reason := _missing("node"):
        return reason
    return "" if (CACHE / "kafkajs" / "node_modules" / "kafkajs").is_dir() else "not installed: run `make interop`"


def _java() -> str:
    if reason := java.why_missing(module=java.COMPILER):
        return reason
    jars = os.environ.get(JARS, "")
    absent = [name for name in JAVA_NEEDS if not jars or not list(Path(jars).glob(f"{name}-[0-9]*.jar"))]
    return f"{JARS}={jars!r} has no jar of {', '.join(absent)}" if absent else ""


def _franz() -> str:
    return "" if (CACHE / "franz").is_file() else _missing("go") or "not built: run `make interop`"


NO_ENDPOINT = {TOKEN_ENDPOINT: "is given its tokens by the application"}
NO_OLD = {OLD_FORMATS: "speaks no version before record batches"}

CLIENTS: tuple[Client, ...] = (
    Client("confluent-kafka", _python("confluent"), python=True),
    Client(
        "aiokafka",
        _python("aio"),
        lacks={COOPERATIVE: "has eager assignors only", **NO_OLD, **NO_ENDPOINT},
        python=True,
    ),
    Client("kafka-python", _python("kafka_python"), lacks=NO_ENDPOINT, python=True),
    Client(
        "kcat",
        _python("kcat"),
        lacks={
            ADMIN: "lists metadata only",
            TOKEN: "has no place for a token",
            TOKEN_ENDPOINT: "is built without HTTP",
        },
        absent=_missing("kcat"),
        aborts=False,
    ),
    Client(
        "kafkajs",
        ["node", str(HERE / "drivers" / "kafkajs" / "driver.js")],
        lacks={COOPERATIVE: "has eager assignors only", STATIC: "has no group.instance.id", **NO_OLD, **NO_ENDPOINT},
        codecs=("none", "gzip", "snappy"),
        absent=_kafkajs(),
    ),
    Client(
        "java",
        [
            "java" if java.why_missing(module=java.COMPILER) else java.find(module=java.COMPILER).command,
            "-XX:TieredStopAtLevel=1",
            "-cp",
            f"{os.environ.get(JARS, '')}/*",
            str(HERE / "drivers/java/Driver.java"),
        ],
        lacks=NO_OLD,
        absent=_java(),
    ),
    Client("franz-go", [str(CACHE / "franz")], lacks={**NO_OLD, **NO_ENDPOINT}, absent=_franz()),
)


def install() -> None:
    """Install what `make interop` needs beyond Python: kcat from Debian, clients from npm, franz-go by Go. Failures are
    printed.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    if shutil.which("kcat") is None and shutil.which("apt-get") is not None:
        _try("kcat", ["apt-get", "install", "-y", "-q", "kcat"])
    if shutil.which("npm") is not None:
        for client in ("kafkajs", "platformatic"):
            folder = CACHE / client
            folder.mkdir(exist_ok=True)
            for name in ("package.json", "package-lock.json"):
                shutil.copy(HERE / "drivers" / client / name, folder)
            _try(client, ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], folder)
    if shutil.which("go") is not None:
        _try("franz-go", ["go", "build", "-o", str(CACHE / "franz"), "."], HERE / "drivers" / "franz")


def _try(what: str, command: list[str], folder: Path = ROOT) -> None:
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        print(f"{what} could not be installed: {' '.join(command)}\n{ran.stderr[:2000]}", file=sys.stderr)


def main(words: Sequence[str] | None = None) -> None:
    """Install the clients; there are no arguments."""
    description = "Install the clients that `make interop` needs: kcat by apt-get, others by npm and Go."
    argparse.ArgumentParser(prog="python -m tests.interop.clients", description=description).parse_args(words)
    install()


if __name__ == "__main__":
    main()
