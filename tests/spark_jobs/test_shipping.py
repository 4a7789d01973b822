"""The shipped archive is complete, importable and reproducible."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

from anabranch.spark_jobs import shipping

IMPORTS = "import anabranch.spark_jobs.audit, anabranch.spark_jobs.service, anabranch.cli.audit as c; print(c.__file__)"


def test_archive_contains_all_modules_that_a_cluster_needs(tmp_path: Path) -> None:
    archive = shipping.pack(tmp_path)
    names = zipfile.ZipFile(archive).namelist()
    assert {name.partition("/")[0] for name in names} == {"anabranch"}
    assert not any("__pycache__" in name for name in names)
    # -S: what is installed is found by this path, what `.pth` files name (us) is not.
    done = subprocess.run(
        [sys.executable, "-S", "-c", IMPORTS],
        env={"PYTHONPATH": f"{archive}:{sysconfig.get_path('purelib')}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(archive))


def test_same_sources_give_same_archive(tmp_path: Path) -> None:
    assert shipping.pack(tmp_path / "a").read_bytes() == shipping.pack(tmp_path / "b").read_bytes()


def test_submission_names_packed_files(tmp_path: Path) -> None:
    archive, job = shipping.pack(tmp_path), shipping.write_job(tmp_path)
    needs, words = shipping.submission(archive, job, "spark://m:7077", ["--topic", "t"])
    assert needs == {"PYTHONPATH": str(archive)}
    assert words == ["spark-submit", "--master", "spark://m:7077", "--py-files", str(archive), str(job), "--topic", "t"]
    compile(job.read_text(), str(job), "exec")
