"""Runs tests on a compiled wheel: `python -m tests.compiled_suite [--part 2/6]`, or `make test-compiled PART=2/6`.

The wheel is kept with its environment under `build/compiled`, by the hash of its sources, and is built again only after
a change of them. A part is every sixth test file; by default the part of this day, so that six days run all. Left out
are the simulation, whose probes inspect objects of the product (`test_compiled.py` compares its fingerprints instead),
and tests about sources and pages.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
FOLDERS: Final = ("anabranch", "broker", "clients", "contracts", "controller", "model", "protocol", "secured")
PARTS: Final = 6
SOURCES: Final = ("setup.py", "pyproject.toml", "constraints.txt")
IGNORED: Final = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "out")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns pytest's exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.compiled_suite", description=__doc__)
    parser.add_argument("--part", type=part, default=None, help="N/M: part N of M; by default the one of this day of 6")
    chosen = parser.parse_args(arguments)
    number, parts = chosen.part or (datetime.datetime.now(datetime.UTC).toordinal() % PARTS + 1, PARTS)
    place = ROOT / "build/compiled" / digest(ROOT)
    if not (python := python_of(place)).exists():
        sys.stdout.write("building a compiled wheel; this takes three minutes on two cores\n")
        sys.stdout.flush()
        shutil.rmtree(place.parent, ignore_errors=True)
        python = install_compiled(ROOT, place)
    files = [str(path.relative_to(ROOT)) for path in part_of(sorted(test_files()), number, parts)]
    sys.stdout.write(f"part {number} of {parts}: {len(files)} test files on the wheel in {place.relative_to(ROOT)}\n")
    sys.stdout.flush()
    copy = copy_without_package(ROOT, place / "source")
    command = [str(python), "-m", "pytest", "-q", "-n", "3", "-p", "no:cacheprovider", *files]
    return subprocess.run(command, cwd=copy, env=environment(), check=False).returncode


def part(text: str) -> tuple[int, int]:
    """Parse N/M. Raises ValueError, or argparse's own error for a number that is too large."""
    number, parts = map(int, text.split("/"))
    if not 1 <= number <= parts:
        raise argparse.ArgumentTypeError(f"{text}: the first part is 1/{parts}, the last one {parts}/{parts}")
    return number, parts


def part_of(files: Sequence[Path], number: int, parts: int) -> Sequence[Path]:
    """Return the files of part `number`, from 1 on; each file is in one part."""
    return files[number - 1 :: parts]


def test_files() -> Iterable[Path]:
    """Return the test files that can run on compiled modules."""
    return (path for folder in FOLDERS for path in (ROOT / "tests" / folder).rglob("test_*.py"))


def digest(root: Path) -> str:
    """Return the hash of all from which a wheel is built."""
    digested = hashlib.sha256(sys.version.encode())
    package = root / "src/anabranch"
    for path in [*(root / name for name in SOURCES), *sorted(files_below(package))]:
        digested.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digested.hexdigest()[:16]


def files_below(folder: Path) -> Iterable[Path]:
    """Return the modules of a folder; the package's folders are symbolic links."""
    for directory, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [one for one in folders if one != "__pycache__"]
        yield from (Path(directory) / name for name in names if name.endswith(".py"))


def environment() -> dict[str, str]:
    """Return the variables of a program that is to import the wheel, and not the sources."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def python_of(place: Path) -> Path:
    """Return the interpreter of a place."""
    return place / "venv/bin/python"


def copy_without_package(root: Path, copy: Path) -> Path:
    """Copy a checkout for tests that are to import an installed package."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(root, copy, symlinks=True, ignore=IGNORED)
    shutil.rmtree(copy / "src")
    return copy


def install_compiled(root: Path, place: Path) -> Path:
    """Build a compiled wheel, and install it in an environment that takes all else from this one.

    Args:
        root: The checkout.
        place: A new directory. `source` will be a copy of the checkout without the package.

    Returns:
        The interpreter.
    """
    source = shutil.copytree(root, place / "sources", symlinks=True, ignore=IGNORED)
    build = [sys.executable, "-m", "build", "--quiet", "--wheel", "--outdir", str(place), str(source)]
    subprocess.run(build, env={**os.environ, "ANABRANCH_COMPILE": "1"}, check=True)
    [wheel] = place.glob("*.whl")
    assert "-none-any" not in wheel.name, "nothing is compiled"
    subprocess.run([sys.executable, "-m", "venv", str(place / "venv")], check=True)
    found = python_of(place)
    subprocess.run([str(found), "-m", "pip", "install", "-q", "--no-deps", str(wheel)], check=True)
    inside = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = subprocess.run([str(found), "-c", inside], check=True, capture_output=True, text=True).stdout.strip()
    (Path(packages) / "others.pth").write_text(sysconfig.get_path("purelib"))
    shutil.rmtree(source)
    copy_without_package(root, place / "source")
    return found


if __name__ == "__main__":
    sys.exit(main())
