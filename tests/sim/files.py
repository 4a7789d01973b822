"""A simulated disk: the `Files` interface in memory, with a page cache that can be lost.

Two layers: what was written, and what was flushed. SIGKILL keeps both. A power failure keeps what was flushed and a
random prefix of the rest of each file, possibly with its last bytes scrambled (a torn write); small files that were
replaced lately may come back in their older form. A full disk refuses to grow. A disk may lie about flushing. A bit of
what is stored may flip, and a flush may fail for good.

A process that is dead can no longer reach its disk; one that dies *while* it appends leaves part of the bytes behind.
"""

from __future__ import annotations

import errno
import random
from collections import Counter
from collections.abc import Callable

from anabranch.broker.storage.files import Buffer, File
from tests.sim.loop import Process, SimLoop

WRITE_BACK_S = 5.0
"""The kernel writes replaced files back within this time."""


class Inode:
    """One file's content in the page cache, and on the platter."""

    __slots__ = ("before", "content", "dirty_from", "durable", "replaced_s")

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.durable = bytearray()
        self.dirty_from = 0
        self.before: bytes | None = None
        self.replaced_s = -1.0

    def flush(self) -> None:
        self.durable[self.dirty_from :] = self.content[self.dirty_from :]
        self.dirty_from = len(self.content)


def _copied(inode: Inode) -> Inode:
    copy = Inode(bytes(inode.content))
    copy.flush()
    return copy


Directories = dict[str, dict[str, Inode | None]]
"""Path -> the names in it; a directory has no inode."""


class SimDisk:
    """One machine's disk; outlives the processes that use it through `DiskView`."""

    def __init__(self, loop: SimLoop, rng: random.Random, name: str) -> None:
        self.loop = loop
        self.rng = rng
        self.name = name
        self.full = False
        self.lying = False
        self.lied = False
        self.unflushable = ""
        """The directory whose files cannot be flushed."""
        self.die_in_append: Callable[[], None] | None = None
        self.fired: Counter[str] = Counter()
        self.directories: Directories = {"": {}}
        self._volumes: dict[str, Directories] = {"": self.directories}

    def rot(self, path: str, at: int, bit: int) -> None:
        """A bit of a file is another one than was written."""
        directory, _, name = path.rpartition("/")
        inode = self.directories[directory][name]
        assert inode is not None, f"{path} is a directory"
        for layer in (inode.content, inode.durable):
            if at < len(layer):
                layer[at] ^= 1 << bit
        self.fired["bit rot"] += 1

    def stop_lying(self) -> None:
        """What it claimed to have flushed is flushed."""
        self.lying = self.lied = False
        for names in self.directories.values():
            for inode in names.values():
                if inode is not None:
                    inode.flush()
                    inode.before = None

    def lose_power(self) -> None:
        """The page cache is lost."""
        for volume in self._volumes.values():
            for names in volume.values():
                for inode in names.values():
                    if inode is not None:
                        self._lose(inode)
        self.lied = False

    def restore(self) -> None:
        """The files are replaced by a copy of them: nothing is unflushed any more."""
        for volume in self._volumes.values():
            for names in volume.values():
                names.update({name: None if one is None else _copied(one) for name, one in names.items()})

    def volume(self, path: str) -> Directories:
        """The directories of a volume that is mounted here; the first one has no path. All fail together."""
        return self._volumes.setdefault(path, {"": {}})

    def forms(self, path: str) -> list[bytes]:
        """What a file that is replaced as a whole may contain after a power failure; nothing if it is not there."""
        directory, _, name = path.rpartition("/")
        inode = self.directories.get(directory, {}).get(name)
        return [] if inode is None else [bytes(inode.content), *([] if inode.before is None else [inode.before])]

    def _lose(self, inode: Inode) -> None:
        if inode.replaced_s >= 0:  # written as a whole: the old or the new content
            fresh = inode.before is not None and self.loop.time() - inode.replaced_s < WRITE_BACK_S
            if fresh and self.rng.random() < 0.5:
                inode.content = bytearray(inode.before or b"")
                self.fired["replaced file came back old"] += 1
            return
        if inode.content == inode.durable:
            return
        kept = inode.durable
        if len(inode.content) > len(kept) and inode.content.startswith(kept):
            # The file's size may have reached the platter before its content.
            end = len(inode.content) if self.rng.random() < 0.4 else self.rng.randint(len(kept), len(inode.content))
            extra = bytes(inode.content[len(kept) : end])
            # What a lying disk has lost is lost; damage in what it called safe only shows when somebody reads it.
            if extra and not self.lied and self.rng.random() < 0.5:
                torn = self.rng.randint(1, min(len(extra), 64))
                extra = extra[:-torn] + bytes(torn)
                self.fired["torn write"] += 1
            lost = len(inode.content) - len(kept) - len(extra)
            kept = kept + extra
            self.fired["unflushed bytes lost"] += lost
        inode.content = bytearray(kept)
        inode.durable = bytearray(kept)
        inode.dirty_from = len(kept)


class DiskView:
    """One process's view of a volume of the disk: implements `Files` as long as the process lives."""

    def __init__(self, disk: SimDisk, process: Process, volume: str = "") -> None:
        self._disk = disk
        self._process = process
        self._directories = disk.volume(volume)

    def open(self, path: str) -> File:
        names, name = self._entry(path)
        inode = names.get(name)
        if inode is None:
            if path in self._directories:
                raise IsADirectoryError(path)
            inode = names[name] = Inode()
        return SimFile(self._disk, self._process, inode, directory=path.rpartition("/")[0])

    def names(self, directory: str) -> list[str]:
        self._process.must_live()
        return sorted(self._directories.get(directory, ()))

    def exists(self, path: str) -> bool:
        self._process.must_live()
        directory, _, name = path.rpartition("/")
        return path in self._directories or name in self._directories.get(directory, ())

    def make_directory(self, directory: str) -> None:
        self._process.must_live()
        directories = self._directories
        if directory in directories:
            return
        parent, _, name = directory.rpartition("/")
        self.make_directory(parent)
        if name in directories[parent]:
            raise FileExistsError(directory)
        directories[parent][name] = None
        directories[directory] = {}

    def read_file(self, path: str) -> bytes | None:
        self._process.must_live()
        directory, _, name = path.rpartition("/")
        inode = self._directories.get(directory, {}).get(name)
        return None if inode is None else bytes(inode.content)

    def write_file(self, path: str, content: bytes, *, flushed: bool = False) -> None:
        names, name = self._entry(path)
        if path in self._directories:
            raise IsADirectoryError(path)
        if self._disk.full:
            self._disk.fired["no space left"] += 1
            raise OSError(errno.ENOSPC, "no space left on device", path)
        before = names.get(name)
        inode = names[name] = Inode(content)
        inode.before = None if before is None else bytes(before.content)
        inode.replaced_s = self._disk.loop.time()
        if flushed:
            self.flush_file(path)

    def flush_file(self, path: str) -> None:
        names, name = self._entry(path)
        inode = names.get(name)
        if inode is None:
            raise FileNotFoundError(path)
        if self._disk.lying:
            self._disk.fired["flush that did nothing"] += 1
            self._disk.lied = True
        else:
            inode.before = None

    def flush_directory(self, directory: str) -> None:
        """Names are never lost here; `tests.power_loss` loses them."""
        self._process.must_live()

    def remove(self, path: str) -> None:
        self._process.must_live()
        directory, _, name = path.rpartition("/")
        names = self._directories.get(directory, {})
        if names.get(name) is not None:
            del names[name]

    def remove_directory(self, directory: str) -> None:
        self._process.must_live()
        directories = self._directories
        if directory in directories:
            for path in self._inside(directory):
                del directories[path]
            parent, _, name = directory.rpartition("/")
            del directories[parent][name]

    def rename(self, source: str, target: str) -> None:
        names, name = self._entry(source)
        target_names, target_name = self._entry(target)
        if name not in names:
            raise FileNotFoundError(source)
        if target in self._directories:
            raise FileExistsError(target)
        target_names[target_name] = names.pop(name)
        for path in self._inside(source):
            self._directories[target + path[len(source) :]] = self._directories.pop(path)

    def space_bytes(self) -> tuple[int, int]:
        return -1, -1

    def lock(self) -> None:
        """A disk of the simulation has one process at a time: `must_live` sees to it."""

    def unlock(self) -> None:
        pass

    def _entry(self, path: str) -> tuple[dict[str, Inode | None], str]:
        self._process.must_live()
        directory, _, name = path.rpartition("/")
        if directory not in self._directories:
            raise FileNotFoundError(path)
        return self._directories[directory], name

    def _inside(self, directory: str) -> list[str]:
        return [path for path in self._directories if path == directory or path.startswith(f"{directory}/")]


class SimFile:
    """An open file."""

    __slots__ = ("_directory", "_disk", "_inode", "_process", "size_bytes")

    def __init__(self, disk: SimDisk, process: Process, inode: Inode, *, directory: str) -> None:
        self._directory = directory
        self._disk = disk
        self._process = process
        self._inode = inode
        self.size_bytes = len(inode.content)

    def append(self, *chunks: Buffer) -> None:
        self._process.must_live()
        disk = self._disk
        if disk.full:
            disk.fired["no space left"] += 1
            raise OSError(errno.ENOSPC, "no space left on device")
        data = b"".join(chunks)
        if disk.die_in_append is not None:
            kill, disk.die_in_append = disk.die_in_append, None
            self._inode.content += data[: disk.rng.randint(0, len(data))]
            disk.fired["died in the middle of an append"] += 1
            kill()
            self._process.must_live()
        self._inode.content += data
        self.size_bytes = len(self._inode.content)

    def read(self, position: int, size_bytes: int) -> bytes:
        self._process.must_live()
        return bytes(self._inode.content[position : position + size_bytes])

    def truncate(self, size_bytes: int) -> None:
        self._process.must_live()
        if size_bytes < self.size_bytes:
            del self._inode.content[size_bytes:]
            self._inode.dirty_from = min(self._inode.dirty_from, size_bytes)
            self.size_bytes = size_bytes

    def flush(self) -> None:
        self._process.must_live()
        if self._directory and self._directory == self._disk.unflushable:
            self._disk.fired["flush failed"] += 1
            raise OSError(errno.EIO, "input/output error")
        if self._disk.lying:
            self._disk.fired["flush that did nothing"] += 1
            self._disk.lied = True
        else:
            self._inode.flush()

    def close(self) -> None:
        pass
