"""Packs the audit for a Spark cluster: this package in one archive, and a script for `spark-submit`.

Executors import from the archive as it is (`--py-files`); it has no compiled code. It does not include dependencies:
the executors' interpreter must have them, or an archive of a whole environment is added.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parent.parent
"""Executors need `protocol` and `spark_jobs` of it; a driver inside the cluster needs nearly all."""
ARCHIVE_NAME: Final = "anabranch-audit.zip"
JOB_NAME: Final = "anabranch-audit.py"
JOB: Final = '''\
"""The order audit, for spark-submit: takes what `anabranch audit` takes."""

from anabranch.cli.audit import command

command(prog_name="anabranch audit")
'''
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


def pack(directory: Path) -> Path:
    """Write this package into an archive; the same sources give the same bytes."""
    sources = sorted(
        Path(folder, name)
        for folder, _, names in os.walk(PACKAGE, followlinks=True)  # in a checkout its folders are links
        for name in names
        if _belongs(Path(folder, name))
    )
    archive = directory / ARCHIVE_NAME
    directory.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for source in sources:
            entry = zipfile.ZipInfo(source.relative_to(PACKAGE.parent).as_posix(), _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, source.read_bytes())
    return archive


def write_job(directory: Path) -> Path:
    """Write the script that `spark-submit` starts."""
    directory.mkdir(parents=True, exist_ok=True)
    job = directory / JOB_NAME
    job.write_text(JOB)
    return job


def submission(archive: Path, job: Path, master: str, words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the environment variables and the command line for a job on a cluster.

    Executors import from `--py-files`. Spark's processes that query a streaming source's offsets, beside the driver, do
    not (4.3): they get the archive from the environment of the driver's JVM.
    """
    command = ["spark-submit", "--master", master, "--py-files", str(archive), str(job), *words]
    return {"PYTHONPATH": str(archive)}, command


def _belongs(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts and path.suffix in (".py", ".typed")
