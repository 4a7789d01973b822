"""Files are flushed before they are renamed, and their directory after it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from anabranch.clients.durable_files import flush_path, make_directory, replace_file, write_all
from tests.power_loss.recording import record


@pytest.mark.parametrize("flushed", [True, False])
def test_content_is_flushed_before_the_rename_and_the_name_after_it(flushed: bool, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a longer former content")
    with record(tmp_path) as recorder:
        replace_file(str(path), b"new", flushed=flushed, mode=0o600)
    kinds = [one.kind for one in recorder.operations]
    flushes = ["create", "write", "sync", "rename", "syncdir"]
    assert kinds == (flushes if flushed else ["create", "write", "rename"])
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_failed_replacement_leaves_the_former_content(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    (tmp_path / "file.tmp").mkdir()
    with pytest.raises(IsADirectoryError):
        replace_file(str(path), b"new")
    assert path.read_bytes() == b"old"


def test_made_directories_are_flushed_in_their_parents(tmp_path: Path) -> None:
    with record(tmp_path) as recorder:
        make_directory(str(tmp_path / "a" / "b"))
        make_directory(str(tmp_path / "a" / "b"))
    flushed = [one.directory for one in recorder.operations if one.kind == "syncdir"]
    assert flushed == [0, recorder.inodes[str(tmp_path / "a")]]


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    descriptor = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, data: real(descriptor, bytes(data)[:3]))
        write_all(descriptor, b"0123456789")
    os.close(descriptor)
    flush_path(str(tmp_path / "file"))
    assert (tmp_path / "file").read_bytes() == b"0123456789"
