"""A zip file is read in slices and within bounds, whatever sizes it states."""

from __future__ import annotations

import io
import zipfile

import pytest

from anabranch.state import snapshot_file
from anabranch.state.snapshot_file import BadZip, finish, read_zip


def zipped(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED, comment: bytes = b"") -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as archive:
        archive.comment = comment
        for name, content in files.items():
            archive.writestr(name, content)
    return target.getvalue()


def test_files_are_read_in_steps() -> None:
    files = {"a": bytes(5 << 20), "b/c": b"x", "empty": b""}
    steps = read_zip(zipped(files), 6 << 20)
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            assert end.value == files
            break
        count += 1
    assert count >= 5, "each MiB is a step of its own"


@pytest.mark.parametrize("files", [{"a": bytes(3 << 20)}, {str(one): bytes(1 << 18) for one in range(12)}])
def test_bomb_is_refused_at_the_limit(files: dict[str, bytes]) -> None:
    content = zipped(files)
    assert finish(read_zip(content, 3 << 20)) == files
    with pytest.raises(BadZip, match="inflates to more than"):
        finish(read_zip(content, (3 << 20) - 1))


def test_directory_with_too_many_files_is_refused_before_read(monkeypatch: pytest.MonkeyPatch) -> None:
    content = zipped(dict.fromkeys(map(str, range(100)), b""))
    monkeypatch.setattr(snapshot_file, "DIRECTORY_BYTES_MAX", 1000)
    monkeypatch.setattr(zipfile, "ZipFile", None)
    with pytest.raises(BadZip, match="too many files"):
        finish(read_zip(content, 1 << 20))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"x" * 100,
        zipped({"a": b"b"})[:-1],
        zipped({"a": b"b"}, comment=b"PK\x05\x06" + bytes(20)),
        zipped({"a": b"b"}, zipfile.ZIP_BZIP2),
        zipped({"a": b"b" * 100}).replace(b"PK\x03\x04", b"PK\x03\x05"),
        zipped({"a": b"b" * 100}, zipfile.ZIP_STORED).replace(b"b" * 100, b"c" * 100),
    ],
    ids=["empty", "none", "cut", "comment", "bzip2", "header", "checksum"],
)
def test_unreadable_file_is_refused(content: bytes) -> None:
    with pytest.raises(BadZip):
        finish(read_zip(content, 1 << 20))
