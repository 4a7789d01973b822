from __future__ import annotations

import errno
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.broker.storage.files import Files
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.broker.storage.os_files import OsFiles
from anabranch.clients.directory_lock import DirectoryInUse
from anabranch.protocol.file_paths import InvalidPath


def test_appended_bytes_are_read(files: Files) -> None:
    file = files.open("a")
    assert (file.size_bytes, file.read(0, 10)) == (0, b"")
    file.append(b"one", bytearray(b"two"), memoryview(b"xthreex")[1:-1])
    assert file.size_bytes == 11
    assert file.read(0, 100) == b"onetwothree"
    assert file.read(3, 3) == b"two"
    assert (file.read(11, 5), file.read(50, 5)) == (b"", b"")


def test_read_bytes_are_not_changed_by_later_writes(files: Files) -> None:
    file = files.open("a")
    file.append(b"before")
    seen = file.read(0, 6)
    file.truncate(0)
    file.append(b"after!")
    assert seen == b"before"


def test_truncate_shortens_and_never_extends_a_file(files: Files) -> None:
    file = files.open("a")
    file.append(b"0123456789")
    file.truncate(20)
    assert file.size_bytes == 10
    file.truncate(4)
    file.append(b"x")
    assert (file.size_bytes, file.read(0, 100)) == (5, b"0123x")
    file.flush()


def test_content_survives_closing(files: Files) -> None:
    file = files.open("a")
    file.append(b"kept")
    file.close()
    assert files.open("a").read(0, 10) == b"kept"
    file.append(b"!")
    assert file.read(0, 10) == b"kept!"


def test_flush_of_a_removed_file_is_refused(files: Files) -> None:
    files.make_directory("t-0")
    files.write_file("t-0/note", b"x")
    files.remove("t-0/note")
    with pytest.raises(FileNotFoundError):
        files.flush_file("t-0/note")
    files.flush_directory("t-0")
    files.flush_directory("")


def test_replaced_file_can_be_flushed(files: Files) -> None:
    files.make_directory("t-0")
    files.write_file("t-0/note", b"x")
    files.write_file("t-0/note", b"y")
    files.flush_file("t-0/note")
    assert files.read_file("t-0/note") == b"y"


@pytest.mark.parametrize("name", ["../outside", "t-0/../../outside", "/outside", "outside\0"])
def test_path_outside_of_the_directory_is_refused(tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "log").write_bytes(b"kept")
    files = OsFiles(tmp_path / "data")
    files.make_directory("t-0")
    actions: list[Callable[[], object]] = [
        lambda: files.open(f"{name}/log"),
        lambda: files.names(name),
        lambda: files.exists(name),
        lambda: files.make_directory(f"{name}/deep"),
        lambda: files.read_file(f"{name}/log"),
        lambda: files.write_file(f"{name}/log", b"evil"),
        lambda: files.flush_file(f"{name}/log"),
        lambda: files.remove(f"{name}/log"),
        lambda: files.remove_directory(name),
        lambda: files.rename(name, "t-1"),
        lambda: files.rename("t-0", f"{name}/t-0"),
    ]
    for action in actions:
        with pytest.raises(InvalidPath):
            action()
    files.close()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["data", "outside"]
    assert [one.read_bytes() for one in outside.iterdir()] == [b"kept"]


def test_directories_are_created_listed_and_removed(files: Files) -> None:
    assert files.names("t-0") == []
    with pytest.raises(FileNotFoundError):
        files.open("t-0/log")
    files.make_directory("t-0/deep")
    files.make_directory("t-0")
    files.open("t-0/log").append(b"x")
    files.write_file("t-0/deep/note", b"y")
    assert files.names("") == ["t-0"]
    assert files.names("t-0") == ["deep", "log"]
    assert files.names("t-0/deep") == ["note"]
    assert [files.exists(path) for path in ("t-0", "t-0/log", "t-0/deep/note", "t-0/other", "other")] == [
        True,
        True,
        True,
        False,
        False,
    ]
    files.remove_directory("t-0")
    files.remove_directory("t-0")
    assert files.names("") == []
    assert not files.exists("t-0/deep/note")


def test_small_files_are_replaced_and_removed(files: Files) -> None:
    assert files.read_file("note") is None
    assert files.read_file("no/such/note") is None
    files.write_file("note", b"one")
    assert files.open("note").read(0, 10) == b"one"
    files.write_file("note", b"three")
    assert files.read_file("note") == b"three"
    assert files.open("note").read(0, 10) == b"three"
    assert files.names("") == ["note"]
    files.remove("note")
    files.remove("note")
    assert files.read_file("note") is None
    with pytest.raises(FileNotFoundError):
        files.write_file("no/such/note", b"")


def test_files_and_directories_are_renamed(files: Files) -> None:
    files.make_directory("t-0")
    files.open("t-0/log").append(b"x")
    files.rename("t-0", "t-0.delete")
    assert files.names("") == ["t-0.delete"]
    assert files.open("t-0.delete/log").read(0, 5) == b"x"
    files.make_directory("t-0")
    assert files.open("t-0/log").size_bytes == 0, "the name is free again"
    files.remove_directory("t-0")
    files.write_file("a", b"a")
    files.write_file("b", b"b")
    files.rename("a", "b")
    assert (files.read_file("a"), files.read_file("b")) == (None, b"a")
    with pytest.raises(FileNotFoundError):
        files.rename("missing", "c")
    files.make_directory("d")
    with pytest.raises(FileExistsError):
        files.rename("t-0.delete", "d")


def test_more_files_than_descriptors_can_be_open(files: Files) -> None:
    opened = [files.open(f"f{number}") for number in range(10)]  # the fixture allows four
    for turn in range(3):
        for number, file in enumerate(opened):
            file.append(b"%d%d" % (turn, number))
    assert [file.read(0, 100) for file in opened] == [b"0%d1%d2%d" % (n, n, n) for n in range(10)]
    if isinstance(files, OsFiles):
        assert len(files._descriptors) <= 4


operations = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.binary(max_size=5000), max_size=3)),
        st.tuples(
            st.just("append"), st.lists(st.integers(1, 9).map(lambda kib: bytes([kib]) * (kib << 10)), max_size=3)
        ),
        st.tuples(st.just("truncate"), st.integers(0, 60_000)),
        st.tuples(st.just("read"), st.tuples(st.integers(0, 60_000), st.integers(0, 60_000))),
        st.tuples(st.just("close"), st.none()),
    ),
    max_size=30,
)


@settings(max_examples=50)
@given(operations)
def test_memory_and_os_files_behave_equally(
    tmp_path_factory: pytest.TempPathFactory, todo: list[tuple[str, object]]
) -> None:
    disk = OsFiles(tmp_path_factory.mktemp("files"))
    one, other = MemoryFiles().open("f"), disk.open("f")
    try:
        for name, argument in todo:
            arguments = () if argument is None else argument if name in ("append", "read") else (argument,)
            assert getattr(one, name)(*arguments) == getattr(other, name)(*arguments)  # type: ignore[misc]
            assert one.size_bytes == other.size_bytes
        assert one.read(0, one.size_bytes) == other.read(0, other.size_bytes)
    finally:
        disk.close()


def test_append_to_memory_file_does_not_copy_earlier_data() -> None:
    """One growing array would be copied again and again."""
    file, batch = MemoryFiles().open("f"), bytes(16_384)
    for _ in range(256):
        file.append(batch)
    tracemalloc.start()
    try:
        for _ in range(256):
            file.append(batch)
        made, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert made < 1.25 * 256 * len(batch)


def test_small_batches_in_memory_share_blocks() -> None:
    file = MemoryFiles().open("f")
    tracemalloc.start()
    try:
        for _ in range(10_000):
            file.append(b"x" * 100)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1.25 * file.size_bytes


def test_full_disk_leaves_the_file_unchanged_and_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = OsFiles(tmp_path)
    file = disk.open("f")
    file.append(b"kept")
    write = os.pwritev

    def half(descriptor: int, chunks: object, position: int) -> int:
        return write(descriptor, [b"".join(chunks)[:3]], position)  # type: ignore[call-overload, no-any-return]

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "pwritev", half)
    monkeypatch.setattr(os, "pwrite", full)
    for _ in range(3):
        with pytest.raises(OSError, match="no space left"):
            file.append(b"lost", b"too")
    disk.write_file("checkpoint", b"there is room again")
    with pytest.raises(OSError, match="no space left"):
        disk.open("another").append(b"lost", b"too")
    message = f"{tmp_path} is full: produce requests fail until space is free: No space left on device"
    assert caplog.messages == [message] * 2
    monkeypatch.undo()
    assert (file.size_bytes, (tmp_path / "f").read_bytes()) == (4, b"kept")
    file.append(b"!")
    assert file.read(0, 10) == b"kept!"
    disk.close()


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = OsFiles(tmp_path)
    file = disk.open("f")
    write, write_vector = os.pwrite, os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, chunks, at: write_vector(fd, [b"".join(chunks)[:3]], at))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, data[:2], at))
    file.append(b"abcdef", b"ghij")
    assert (file.size_bytes, file.read(0, 20)) == (10, b"abcdefghij")
    disk.close()


def test_directory_is_locked_by_one_owner_at_a_time(tmp_path: Path) -> None:
    first, second = OsFiles(tmp_path), OsFiles(tmp_path)
    first.lock()
    with pytest.raises(DirectoryInUse, match=r"Failed to acquire lock on file \.lock in"):
        second.lock()
    second.unlock()
    with pytest.raises(DirectoryInUse):
        second.lock()
    first.unlock()
    second.lock()
    second.unlock()


def test_memory_files_need_no_lock() -> None:
    files = MemoryFiles()
    files.lock()
    files.unlock()
    assert files.names("") == []


def test_removed_memory_file_releases_its_data_despite_open_handles() -> None:
    """A deleted partition's log is in reference cycles, which the garbage collector may find late."""
    files = MemoryFiles()
    files.make_directory("t-0/inner")
    opened = [files.open(path) for path in ("a", "t-0/b", "t-0/inner/c")]
    for file in opened:
        file.append(bytes(1000))
    files.remove("a")
    files.remove_directory("t-0")
    assert [(file.size_bytes, file.read(0, 10)) for file in opened] == [(0, b"")] * 3
