"""The built and installed package, in a project with equal folder names."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from anabranch.spark_jobs.java import why_missing

ROOT: Final = Path(__file__).parents[1]
OURS: Final = ("protocol", "clients", "controller", "broker", "chaos", "spark_jobs", "tests", "benchmarks")
SOURCES: Final = ("LICENSE", "MANIFEST.in", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg", "setup.py", "src")
TIMEOUT_S: Final = 600

THEIR_TEST: Final = """\
import broker, chaos, clients, controller, protocol, spark_jobs
from confluent_kafka import Producer

def test_their_code(anabranch_cluster):
    assert {one.WHOSE for one in (broker, chaos, clients, controller, protocol, spark_jobs)} == {"theirs"}
    producer = Producer({"bootstrap.servers": anabranch_cluster.bootstrap_servers})
    producer.produce("orders", b"x")
    assert producer.flush(60) == 0
"""
THEIR_PROGRAM: Final = """\
import asyncio
import sys
from typing import assert_type

import clients
from anabranch import Admin, Consumer, ConsumerRecord, NewTopic, Producer, RecordMetadata

N = 50


async def send(producer: Producer, first: int) -> None:
    for number in range(first, first + N):
        stored = await producer.send_and_wait("orders", key=b"%d" % (number % 7), value=b"%d" % number)
        assert_type(stored, RecordMetadata)


async def main(servers: str) -> None:
    async with Admin(servers) as admin:
        await admin.create_topics([NewTopic(name="orders", partitions=2)])
        async with Producer(bootstrap_servers=servers, audit=True) as producer:
            await send(producer, 0)
            resize = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "anabranch.cli.main", "topics", "alter", "orders", "--partitions", "3"),
                *("--bootstrap-servers", servers),
            )
            assert await resize.wait() == 0
            await send(producer, N)
    numbers: dict[bytes | None, list[int]] = {}
    consumer = Consumer(
        "orders", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest", audit="orders-audit"
    )
    async with consumer:
        while sum(map(len, numbers.values())) < 2 * N:
            record = await consumer.getone()
            assert_type(record, ConsumerRecord)
            numbers.setdefault(record.key, []).append(int(record.value or b""))
    assert all(each == sorted(each) for each in numbers.values())
    print(clients.WHOSE, sum(map(len, numbers.values())))


asyncio.run(main(sys.argv[1]))
"""


@dataclass(frozen=True)
class Project:
    """A folder with packages named as ours, and an interpreter that has our wheel installed."""

    folder: Path
    python: Path

    def run(self, *words: str, path: str = "") -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": path, "PATH": f"{self.python.parent}:{os.environ['PATH']}"}
        return subprocess.run(
            words, cwd=self.folder, env=env, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source distribution, and the wheel that is built from it."""
    out = tmp_path_factory.mktemp("built")
    source = out / "checkout"
    ignored = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "out")
    shutil.copytree(ROOT, source, symlinks=True, ignore=ignored)
    words = [sys.executable, "-m", "build", "--quiet", "--outdir", str(out), str(source)]
    subprocess.run(words, check=True, capture_output=True)
    (sdist,) = out.glob("*.tar.gz")
    (wheel,) = out.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def project(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Their folder. What we depend on comes from this environment; we do not, as `.pth` files of its are not read."""
    folder = tmp_path_factory.mktemp("project")
    for name in OURS:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text('WHOSE = "theirs"\n')
    (folder / "tests" / "test_theirs.py").write_text(THEIR_TEST)
    (folder / "program.py").write_text(THEIR_PROGRAM)
    environment = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = environment / "bin" / "python"
    words = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*words, "--no-deps", "--no-compile", str(built[1])], check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return Project(folder, python)


def test_a_wheel_installs_one_package(built: tuple[Path, Path]) -> None:
    sdist, wheel = built
    roots = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {root for root in roots if not root.endswith(".dist-info")} == {"anabranch"}
    with tarfile.open(sdist) as packed:
        assert {Path(name).parts[1] for name in packed.getnames() if len(Path(name).parts) > 1} <= set(SOURCES)
        assert not any(member.issym() for member in packed.getmembers()), "what it links to is not in there"
    assert "anabranch/py.typed" in zipfile.ZipFile(wheel).namelist()


def test_an_index_of_packages_accepts_both(built: tuple[Path, Path]) -> None:
    words = [sys.executable, "-m", "twine", "check", "--strict", *map(str, built)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0 and done.stdout.count("PASSED") == 2, done.stdout + done.stderr


def test_all_of_the_sources_are_in_the_wheel(built: tuple[Path, Path]) -> None:
    package = ROOT / "src" / "anabranch"
    sources = {
        Path(folder, name).relative_to(package.parent).as_posix()
        for folder, _, names in os.walk(package, followlinks=True)
        for name in names
        if name.endswith(".py")
    }
    assert {name for name in zipfile.ZipFile(built[1]).namelist() if name.endswith(".py")} == sources


@pytest.mark.costly
@pytest.mark.processes
@pytest.mark.parametrize("words", [("-m", "pytest"), ("-c", "import pytest; pytest.console_main()")])
def test_the_fixture_leaves_their_names_to_them(project: Project, words: tuple[str, ...]) -> None:
    done = project.run(str(project.python), *words, "-q", "-p", "no:cacheprovider", path=str(project.folder))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


@pytest.mark.costly
@pytest.mark.processes
def test_their_program_resizes_and_spark_audits_it(project: Project, tmp_path: Path) -> None:
    up = [str(project.python), "-m", "anabranch.cli.main", "up", "--brokers", "1", "--port", "0"]
    env = {**os.environ, "PYTHONPATH": str(project.folder)}
    with subprocess.Popen(up, cwd=project.folder, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            servers = process.stdout.readline().strip().partition("bootstrap=")[2]
            done = project.run(str(project.python), "program.py", servers, path=str(project.folder))
            assert done.stdout.splitlines()[-1:] == ["theirs 100"], done.stdout + done.stderr
            if why_missing() is not None:
                pytest.skip(f"NOT AUDITED: {why_missing()}")
            words = ["--topic", "orders-audit", "--expect", "orders", "--backfill", "--out", str(tmp_path)]
            words += ["--bootstrap-servers", servers]
            done = project.run(
                str(project.python), "-m", "anabranch.cli.main", "audit", *words, path=str(project.folder)
            )
            assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
            assert running_with(tmp_path) == []
            assert not (tmp_path / "spark-temporary").exists()
        finally:
            process.terminate()


def running_with(directory: Path) -> list[Path]:
    """The processes whose command line names the directory, as that of a Spark does."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.fsencode(directory) in (process / "cmdline").read_bytes():
                found.append(process)
    return found


@pytest.mark.costly
def test_their_type_checker_sees_our_types(project: Project) -> None:
    mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(project.python), "program.py"]
    assert project.run(*mypy).stdout.startswith("Success")
    (project.folder / "wrong.py").write_text("from anabranch import Producer\n\nProducer(bootstrap_servers=3)\n")
    assert 'incompatible type "int"' in project.run(*mypy[:-1], "wrong.py").stdout
