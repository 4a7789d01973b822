"""The model of a disk keeps what is flushed, and loses of the rest what a file system may lose."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from anabranch.clients.durable_files import flush_path, replace_file
from tests.power_loss.disk import MODES, Disk, Tree, check_complete, materialize, stored
from tests.power_loss.recording import Recorder, record


def states_after(recorder: Recorder, before: Tree) -> list[Tree]:
    """Many of the states that a power failure may leave at the end."""
    disk = Disk(before)
    for operation in recorder.operations:
        disk.apply(operation)
    return [disk.after_power_loss(random.Random(seed), mode) for mode in MODES for seed in range(30)]


def append(path: Path, content: bytes, *, flushed: bool) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, content)
    if flushed:
        os.fsync(descriptor)
    os.close(descriptor)


def test_content_without_a_flushed_name_may_be_lost(tmp_path: Path) -> None:
    with record(tmp_path) as recorder:
        append(tmp_path / "a", b"content", flushed=True)
    states = states_after(recorder, {})
    assert {} in states and {"a": b"content"} in states
    with record(tmp_path) as again:
        append(tmp_path / "b", b"content", flushed=True)
        flush_path(str(tmp_path))
    assert all(one["b"] == b"content" for one in states_after(again, {"a": b"content"}))


def test_unflushed_append_is_lost_kept_or_torn_behind_what_is_flushed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 600)
    with record(tmp_path) as recorder:
        append(tmp_path / "a", b"y" * 900, flushed=False)
    found = [one["a"] for one in states_after(recorder, {"a": b"x" * 600})]
    assert all(isinstance(one, bytes) and one.startswith(b"x" * 600) for one in found)
    rests = {one[600:] for one in found if isinstance(one, bytes)}
    assert {b"", b"y" * 900, bytes(900)} < rests
    assert any(0 < len(one) < 900 and set(one) == {ord("y")} for one in rests), "cut"
    assert any(len(set(one)) > 5 for one in rests), "garbage in the last sector"


@pytest.mark.parametrize("flushed", [False, True])
def test_replaced_file_is_old_or_new_only_if_it_was_flushed(flushed: bool, tmp_path: Path) -> None:
    before: Tree = {"a": b"old"}
    materialize(before, tmp_path)
    with record(tmp_path) as recorder:
        replace_file(str(tmp_path / "a"), b"new", flushed=flushed)
    found = {bytes(one["a"]) for one in states_after(recorder, before) if isinstance(one["a"], bytes)}
    assert found == ({b"new"} if flushed else {b"old", b"new", b"", bytes(3)})


def test_removed_file_may_come_back_until_its_directory_is_flushed(tmp_path: Path) -> None:
    before: Tree = {"d": {"a": b"1"}}
    materialize(before, tmp_path)
    with record(tmp_path) as recorder:
        (tmp_path / "d" / "a").unlink()
    assert before in states_after(recorder, before)
    with record(tmp_path) as again:
        append(tmp_path / "d" / "b", b"2", flushed=True)
        (tmp_path / "d" / "b").rename(tmp_path / "d" / "c")
        flush_path(str(tmp_path / "d"))
    assert all(one == {"d": {"c": b"2"}} for one in states_after(again, {"d": {}}))


def test_change_past_the_recorded_calls_is_noticed(tmp_path: Path) -> None:
    with record(tmp_path) as recorder:
        append(tmp_path / "a", b"seen", flushed=False)
        check_complete(recorder.operations, {}, tmp_path)
        (tmp_path / "b").write_bytes(b"not seen")
        with pytest.raises(AssertionError, match="past the recorded calls"):
            check_complete(recorder.operations, {}, tmp_path)
    assert stored(tmp_path) == {"a": b"seen", "b": b"not seen"}
