"""A file system in this process's memory, for clusters that keep nothing: see `files` for what each method does.

Every file is one growing array of bytes. Nothing is safer after a flush than before it.
"""

from __future__ import annotations

from anabranch.broker.storage.files import Buffer, File


class MemoryFile:
    """A file that is one growing array of bytes."""

    __slots__ = ("_content", "size_bytes")

    def __init__(self, content: bytes = b"") -> None:
        self._content = bytearray(content)
        self.size_bytes = len(content)

    def append(self, *chunks: Buffer) -> None:
        """See `File`."""
        for chunk in chunks:
            self._content += chunk
        self.size_bytes = len(self._content)

    def read(self, position: int, size_bytes: int) -> bytes:
        """See `File`. Only what is asked for is copied."""
        with memoryview(self._content) as view:
            return bytes(view[position : position + size_bytes])

    def truncate(self, size_bytes: int) -> None:
        """See `File`."""
        if size_bytes < self.size_bytes:
            del self._content[size_bytes:]
            self.size_bytes = size_bytes

    def flush(self) -> None:
        """Nothing is safer than it already is."""

    def close(self) -> None:
        """Nothing is held beside the content."""

    def drop(self) -> None:
        """The file was removed: an object that still refers to it must not keep its content in memory."""
        self._content = bytearray()
        self.size_bytes = 0


class MemoryFiles:
    """A file system that dies with the process: some hundred bytes per file and nothing to start or clean up."""

    def __init__(self) -> None:
        self._directories: dict[str, dict[str, MemoryFile | None]] = {"": {}}  # None stands for a directory

    def open(self, path: str) -> File:
        """See `Files`."""
        names, name = self._entry(path)
        file = names.get(name)
        if file is None:
            file = self._put(names, path, MemoryFile())
        return file

    def names(self, directory: str) -> list[str]:
        """See `Files`."""
        return sorted(self._directories.get(directory, ()))

    def exists(self, path: str) -> bool:
        """See `Files`."""
        directory, _, name = path.rpartition("/")
        return path in self._directories or name in self._directories.get(directory, ())

    def make_directory(self, directory: str) -> None:
        """See `Files`."""
        if directory in self._directories:
            return
        parent, _, name = directory.rpartition("/")
        self.make_directory(parent)
        if name in self._directories[parent]:
            raise FileExistsError(directory)
        self._directories[parent][name] = None
        self._directories[directory] = {}

    def read_file(self, path: str) -> bytes | None:
        """See `Files`."""
        directory, _, name = path.rpartition("/")
        file = self._directories.get(directory, {}).get(name)
        return None if file is None else file.read(0, file.size_bytes)

    def write_file(self, path: str, content: bytes) -> None:
        """See `Files`."""
        names, _ = self._entry(path)
        self._put(names, path, MemoryFile(content))

    def flush_file(self, path: str) -> None:
        """See `Files`."""

    def remove(self, path: str) -> None:
        """See `Files`."""
        directory, _, name = path.rpartition("/")
        names = self._directories.get(directory, {})
        file = names.get(name)
        if file is not None:
            file.drop()
            del names[name]

    def remove_directory(self, directory: str) -> None:
        """See `Files`."""
        if directory in self._directories:
            for path in self._with_inside(directory):
                for file in self._directories.pop(path).values():
                    if file is not None:
                        file.drop()
            parent, _, name = directory.rpartition("/")
            del self._directories[parent][name]

    def rename(self, source: str, target: str) -> None:
        """See `Files`."""
        names, name = self._entry(source)
        target_names, target_name = self._entry(target)
        if name not in names:
            raise FileNotFoundError(source)
        if target in self._directories:
            raise FileExistsError(target)
        target_names[target_name] = names.pop(name)
        for path in self._with_inside(source):
            self._directories[target + path[len(source) :]] = self._directories.pop(path)

    def space_bytes(self) -> tuple[int, int]:
        """Memory has no size of its own."""
        return -1, -1

    def lock(self) -> None:
        """Nothing to lock: no other process can reach these files."""

    def unlock(self) -> None:
        """See `lock`."""

    def _entry(self, path: str) -> tuple[dict[str, MemoryFile | None], str]:
        directory, _, name = path.rpartition("/")
        if directory not in self._directories:
            raise FileNotFoundError(path)
        return self._directories[directory], name

    def _put(self, names: dict[str, MemoryFile | None], path: str, file: MemoryFile) -> MemoryFile:
        if path in self._directories:
            raise IsADirectoryError(path)
        names[path.rpartition("/")[2]] = file
        return file

    def _with_inside(self, directory: str) -> list[str]:
        """A directory that exists and all below it, found from above: there may be thousands beside it."""
        if directory not in self._directories:
            return []
        found = [directory]
        for path in found:
            inside = self._directories[path]
            found += [f"{path}/{name}" for name, file in inside.items() if file is None]
        return found
