"""Filled disks: a file system and a process that exist for this test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.chaos import disk

SMALL = "mount -t tmpfs -o size=256k none {0} && exec {1} -c '{2}' {0}"
ON_SMALL = """
import errno, sys
from pathlib import Path
from anabranch.chaos import disk
place = Path(sys.argv[1])
size = disk.fill(place, leave_bytes=8192)
assert disk.free_bytes(place) <= 8192 < size, size
try:
    (place / "log").write_bytes(bytes(65536))
except OSError as error:
    assert error.errno == errno.ENOSPC
else:
    raise AssertionError("there was room")
assert disk.release(place) == size
(place / "log").write_bytes(bytes(65536))
print("as expected")
"""


def test_small_file_system_is_filled_and_freed(tmp_path: Path) -> None:
    script = SMALL.format(tmp_path, sys.executable, ON_SMALL)
    try:
        done = subprocess.run(["unshare", "-Urm", "sh", "-c", script], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("NO SMALL FILE SYSTEM WAS FILLED: there is no unshare on this machine")
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"NO SMALL FILE SYSTEM WAS FILLED: none can be mounted here: {done.stderr}")
    assert done.stdout == "as expected\n", done.stderr


def test_large_file_system_is_not_filled(tmp_path: Path) -> None:
    with pytest.raises(disk.TooLarge, match="small separate file system"):
        disk.fill(tmp_path, at_most_bytes=1000)
    assert not list(tmp_path.iterdir())
    assert disk.release(tmp_path) == 0


def test_limit_stops_process_from_growing_files(tmp_path: Path) -> None:
    writing = """
import sys
for line in sys.stdin:
    try:
        with open(sys.argv[1], "ab") as file:
            file.write(bytes(100))
        print("written", flush=True)
    except OSError as error:
        print(type(error).__name__, error.errno, flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", writing, str(tmp_path / "file")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None

        def write() -> str:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            return process.stdout.readline().strip()

        assert write() == "written"
        disk.limit_files(process.pid, 1)
        assert write() == "OSError 27", os.strerror(27)
        disk.limit_files(process.pid, None)
        assert write() == "written"
        process.stdin.close()
