"""A file that cannot be created yet is empty, and is created at a later write."""

from __future__ import annotations

import pytest

from anabranch.broker.storage.deferred_file import DeferredFile, create_or_defer
from anabranch.broker.storage.files import File
from anabranch.broker.storage.memory_files import MemoryFiles


class Disk:
    """Refuses to make files while it is full."""

    def __init__(self) -> None:
        self.full = True
        self.files = MemoryFiles()

    def make(self) -> File:
        if self.full:
            raise OSError(28, "No space left on device")
        return self.files.open("f")


def test_deferred_file_is_created_at_the_first_write() -> None:
    disk = Disk()
    file = create_or_defer(disk.make)
    assert isinstance(file, DeferredFile)
    assert (file.size_bytes, file.read(0, 10)) == (0, b"")
    file.truncate(0)
    for write in (lambda: file.append(b"abc"), file.flush):
        with pytest.raises(OSError, match="No space"):
            write()
    disk.full = False
    file.append(b"ab", b"c")
    assert disk.make().read(0, 10) == b"abc"
    file.close()


def test_file_is_created_immediately_when_there_is_space() -> None:
    disk = Disk()
    disk.full = False
    assert not isinstance(create_or_defer(disk.make), DeferredFile)
