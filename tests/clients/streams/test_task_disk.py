"""A completed write survives kill -9; untrusted files are discarded.

Method: a real process that writes and is killed at a moment of its own choosing; files that are tampered with.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.clients.streams import task_disk as disk_module
from anabranch.clients.streams.task_disk import (
    DATA_FILE,
    FORMAT_FILE,
    OPEN_MARK,
    TaskDisk,
    Write,
    checkpoints_on_disk,
)
from tests.power_loss.recording import record

STORES = ("a", "b")
WRITER = """
import itertools, sys
from pathlib import Path
from anabranch.clients.streams.task_disk import TaskDisk, Write
disk = TaskDisk(Path(sys.argv[1]), ("a", "b"))
for round in itertools.count(1):
    rows = {b"%d" % key: b"%d" % round for key in range(300)}
    marks = {"a": {b"m": b"%d" % round}}
    disk.write(Write(changes={"a": rows, "b": rows}, checkpoints={"a": round, "b": round}, marks=marks))
    print(round, flush=True)
"""


def test_committed_write_is_complete_after_kill(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        written = 0
        while written < 50:
            written = int(writer.stdout.readline())
        os.kill(writer.pid, signal.SIGKILL)
        rest = writer.stdout.read().split()
    written = int(rest[-1]) if rest else written
    with contextlib.closing(TaskDisk(tmp_path, STORES)) as disk:
        stored = disk.checkpoint("a")
        assert stored in (written, written + 1), "a write that was told of is lost, or one has come from nowhere"
        assert disk.checkpoint("b") == stored
        assert disk.marks("a") == {b"m": b"%d" % stored}
        for store in STORES:
            assert dict(disk.items(store)) == {b"%d" % key: b"%d" % stored for key in range(300)}


def test_stores_of_another_format_are_deleted(tmp_path: Path) -> None:
    """Their changelogs are read again: a value without a timestamp would be cut."""
    for kept in ("1", None):
        with contextlib.closing(TaskDisk(tmp_path / "task", STORES)) as disk:
            disk.write(Write(changes={"a": {b"k": b"1"}}, checkpoints={"a": 7}))
        assert checkpoints_on_disk(tmp_path / "task", STORES) == {"a": 7, "b": 0}
        if kept is None:
            (tmp_path / "task" / FORMAT_FILE).unlink()
        else:
            (tmp_path / "task" / FORMAT_FILE).write_text(kept)
        assert checkpoints_on_disk(tmp_path / "task", STORES) == {"a": 0, "b": 0}


def test_only_writes_and_notes_make_stores_look_new(tmp_path: Path) -> None:
    with contextlib.closing(TaskDisk(tmp_path, STORES)) as disk:
        disk.write(Write(changes={"a": {b"k": b"1"}}, checkpoints={"a": 7}))
    os.utime(tmp_path / DATA_FILE, (1000, 1000))
    assert checkpoints_on_disk(tmp_path, STORES) == {"a": 7, "b": 0}
    assert (tmp_path / DATA_FILE).stat().st_mtime == 1000, "it was only looked at"
    with contextlib.closing(TaskDisk(tmp_path, STORES)) as disk:
        disk.note_current()
    assert (tmp_path / DATA_FILE).stat().st_mtime > 1000


def test_store_survives_restart_and_forgets_on_request(tmp_path: Path) -> None:
    with contextlib.closing(TaskDisk(tmp_path, STORES)) as disk:
        disk.write(Write(changes={"a": {b"k": b"1", b"gone": b"2"}}, checkpoints={"a": 7}))
        disk.write(Write(changes={"a": {b"gone": None}}, marks={"a": {b"m": b"1"}, "b": {b"n": b"2"}}))
    assert checkpoints_on_disk(tmp_path, STORES) == {"a": 7, "b": 0}
    with contextlib.closing(TaskDisk(tmp_path, STORES)) as disk:
        assert (disk.get("a", b"k"), disk.get("a", b"gone"), disk.get("b", b"k")) == (b"1", None, None)
        assert (disk.entries("a"), disk.marks("a"), disk.marks("b")) == (1, {b"m": b"1"}, {b"n": b"2"})
        disk.clear("a")
        assert (disk.entries("a"), disk.checkpoint("a"), disk.marks("a"), disk.marks("b")) == (0, 0, {}, {b"n": b"2"})
    assert checkpoints_on_disk(tmp_path / "nothing", STORES) == {}


def test_keys_that_lmdb_rejects_are_stored(tmp_path: Path) -> None:
    rows = {b"": b"empty", b"x" * 511: b"longest", b"x" * 512: b"too long", b"y" * 5000: b""}
    with contextlib.closing(TaskDisk(tmp_path, STORES)) as disk:
        disk.write(Write(changes={"a": rows}))
        assert dict(disk.items("a")) == rows
        assert disk.entries("a") == len(rows)
        assert all(disk.get("a", key) == value for key, value in rows.items())
        disk.write(Write(changes={"a": {b"": None, b"y" * 5000: None}}))
        assert disk.get("a", b"") is None
        assert set(dict(disk.items("a"))) == {b"x" * 511, b"x" * 512}


def test_range_is_in_order_of_keys(tmp_path: Path) -> None:
    keys = [b"", b"a", b"a" * 512, b"a" * 600, b"b", b"b\0", b"c" * 511, b"c" * 512, b"d"]
    with contextlib.closing(TaskDisk(tmp_path, STORES)) as disk:
        disk.write(Write(changes={"a": dict.fromkeys(keys, b"1"), "b": {b"b": b"2"}}))
        assert list(disk.range("a")) == [(key, b"1") for key in keys]
        for first, last in itertools.product([*keys, b"a" * 550, b"z"], [*keys, b"c" * 600, None]):
            expected = [key for key in keys if first <= key and (last is None or key <= last)]
            assert [key for key, _ in disk.range("a", first, last)] == expected, (first, last)


def test_store_grows_beyond_its_first_map_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_module, "FIRST_MAP_BYTES", 1 << 16)
    with contextlib.closing(TaskDisk(tmp_path, STORES)) as disk:
        for first in range(0, 5000, 500):
            disk.write(Write(changes={"a": {b"%d" % key: b"v" * 200 for key in range(first, first + 500)}}))
        assert disk.entries("a") == 5000


def test_reader_sees_a_consistent_snapshot_during_writes(tmp_path: Path) -> None:
    with contextlib.closing(TaskDisk(tmp_path, STORES)) as disk:
        disk.write(Write(changes={"a": {b"1": b"old", b"2": b"old"}}))
        rows = disk.items("a")
        first = next(rows)
        disk.write(Write(changes={"a": {b"2": b"new"}}))
        assert [first, *rows] == [(b"1", b"old"), (b"2", b"old")]


def test_store_open_during_machine_crash_is_not_trusted(tmp_path: Path) -> None:
    disk = TaskDisk(tmp_path, STORES)
    disk.write(Write(changes={"a": {b"k": b"1"}}, checkpoints={"a": 7}))
    disk.close()
    assert not (tmp_path / OPEN_MARK).exists()
    (tmp_path / OPEN_MARK).write_text("another run of this machine")
    with contextlib.closing(TaskDisk(tmp_path, STORES)) as disk:
        assert (disk.get("a", b"k"), disk.checkpoint("a")) == (None, 0)


def test_mark_of_an_open_store_is_on_the_device_before_the_first_write(tmp_path: Path) -> None:
    """Else a power failure could leave torn stores without the mark, and they would be trusted."""
    with record(tmp_path) as recorder:
        disk = TaskDisk(tmp_path / "0_0", STORES)
    operations = recorder.operations
    named = next(place for place, one in enumerate(operations) if one.new_name == OPEN_MARK)
    assert operations[named - 1].kind == "sync"
    assert operations[named + 1].kind == "syncdir"
    assert operations[named + 1].directory == operations[named].directory
    disk.close()
