"""Files with records or secrets are readable only by their owner, whatever was at the path before."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.control.journal_client import JournalClient
from anabranch.control.snapshots_client import SnapshotsClient
from anabranch.control.telemetry_client import TelemetryClient
from anabranch.runtime.private_files import write_private_file


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_new_file_is_private(tmp_path: Path) -> None:
    write_private_file(tmp_path / "new", b"secret")
    assert (mode(tmp_path / "new"), (tmp_path / "new").read_bytes()) == (0o600, b"secret")


def test_readable_file_becomes_private_before_write(tmp_path: Path) -> None:
    path = tmp_path / "old"
    path.write_bytes(b"longer than what follows")
    path.chmod(0o644)
    write_private_file(str(path), b"secret")
    assert (mode(path), path.read_bytes()) == (0o600, b"secret")


def test_pipe_keeps_its_mode(tmp_path: Path) -> None:
    """Others may still use a pipe such as /dev/stdout."""
    path = tmp_path / "pipe"
    os.mkfifo(path, 0o644)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    write_private_file(path, b"secret")
    assert (mode(path), os.read(reader, 100)) == (0o644, b"secret")
    os.close(reader)


@pytest.mark.parametrize("client", ["snapshots", "journal", "telemetry"])
def test_files_saved_by_control_clients_are_private(client: str, tmp_path: Path) -> None:
    def ask(*_: object, **__: object) -> bytes:
        return b"records"

    path = tmp_path / "saved"
    if client == "snapshots":
        SnapshotsClient(ask).save("name", path)
    elif client == "journal":
        JournalClient(ask).save(path)
    else:
        TelemetryClient(ask).save("shop", path)
    assert (mode(path), path.read_bytes()) == (0o600, b"records")
