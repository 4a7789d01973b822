"""The stores of one task on disk: an LMDB environment. The only module that imports LMDB.

One write is one transaction of all stores' changes, marks and checkpoints, so that after a SIGKILL the disk holds a
complete write. Writes are not flushed to the device: a machine crash may lose the newest writes or tear the file, so a
store that was open then is not trusted; it is deleted, and restored from its changelog. A mark with the machine's boot
id tells the two kinds of crash apart; it is on the device before the first write. Stores of another format (`FORMAT`)
are deleted, too.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import operator
import os
import shutil
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import lmdb

from anabranch.clients.durable_files import make_directory, replace_file

FIRST_MAP_BYTES: Final = 1 << 28
"""Address space, not memory or disk; doubled whenever it is full."""
KEY_BYTES_MAX: Final = 511
"""LMDB's own limit."""
_KEY_LENGTH: Final = struct.Struct(">I")
OPEN_MARK: Final = "open"
FORMAT: Final = "2"
"""2: rows of timestamped stores begin with a timestamp (`state_store`)."""
FORMAT_FILE: Final = "format"
DATA_FILE: Final = "data.mdb"
"""When it was last written tells `StateDirectory` how old the stores are."""
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_CHECKPOINT: Final = b"checkpoint/"
_MARK: Final = b"mark/"
_TOPIC_ID: Final = b"topic-id/"
Changes = Mapping[bytes, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One atomic write; stores by name. None deletes."""

    changes: Mapping[str, Changes] = field(default_factory=dict)
    marks: Mapping[str, Mapping[bytes, bytes]] = field(default_factory=dict)
    checkpoints: Mapping[str, int] = field(default_factory=dict)
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)


class TaskDisk:
    """The stores of one task, on this machine."""

    def __init__(self, directory: Path, stores: tuple[str, ...]) -> None:
        self.directory = directory
        _distrust_after_power_failure(directory)
        _distrust_other_format(directory)
        make_directory(str(directory))
        replace_file(str(directory / FORMAT_FILE), FORMAT.encode(), flushed=False)
        replace_file(str(directory / OPEN_MARK), _boot_id().encode())
        self._env = lmdb.open(
            str(directory), map_size=FIRST_MAP_BYTES, max_dbs=2 * len(stores) + 1, sync=False, metasync=False, lock=True
        )
        self._meta = self._env.open_db(b"meta")
        self._dbs = {store: self._env.open_db(b"store/" + store.encode()) for store in stores}
        self._odd = {store: self._env.open_db(b"odd/" + store.encode()) for store in stores}
        """Keys that LMDB does not accept (empty or long), by their digests; the value includes the key."""
        self._reading = self._env.begin()

    def get(self, store: str, key: bytes) -> bytes | None:
        """Return the value of a key."""
        if 0 < len(key) <= KEY_BYTES_MAX:
            found: bytes | None = self._reading.get(key, db=self._dbs[store])
            return found
        row = self._reading.get(_digest(key), db=self._odd[store])
        return None if row is None else _unpack(row)[1]

    def items(self, store: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield a snapshot of a store, by key."""
        with self._env.begin() as snapshot:
            yield from snapshot.cursor(db=self._dbs[store])
            for _, row in snapshot.cursor(db=self._odd[store]):
                yield _unpack(row)

    def range(self, store: str, first: bytes = b"", last: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield a snapshot of a store from one key to another, both included, by key; None: to its end."""
        with self._env.begin() as snapshot:
            odd = (_unpack(row) for _, row in snapshot.cursor(db=self._odd[store]))
            outside = sorted(row for row in odd if first <= row[0] and (last is None or row[0] <= last))
            cursor = snapshot.cursor(db=self._dbs[store])
            found = cursor if not first or cursor.set_range(first[:KEY_BYTES_MAX]) else iter(())
            inside = itertools.takewhile(lambda row: last is None or row[0] <= last, found)
            yield from heapq.merge((row for row in inside if first <= row[0]), outside)

    def entries(self, store: str) -> int:
        """Return the number of keys in a store."""
        return sum(int(self._reading.stat(db)["entries"]) for db in (self._dbs[store], self._odd[store]))

    def checkpoint(self, store: str) -> int:
        """Return the store's checkpoint in its changelog: the next offset to read. 0 if it has none."""
        return int(self._reading.get(_CHECKPOINT + store.encode(), default=b"0", db=self._meta))

    def topic_id(self, store: str) -> bytes:
        """Return the topic id of the changelog from which the store was restored; empty if unknown."""
        found: bytes = self._reading.get(_TOPIC_ID + store.encode(), default=b"", db=self._meta)
        return found

    def marks(self, store: str) -> dict[bytes, bytes]:
        """Return the mark records of the store's changelog."""
        prefix = _MARK + store.encode() + b"/"
        cursor = self._reading.cursor(db=self._meta)
        found: dict[bytes, bytes] = {}
        if cursor.set_range(prefix):
            for key, value in cursor:
                if not key.startswith(prefix):
                    break
                found[key.removeprefix(prefix)] = value
        return found

    def write(self, write: Write) -> None:
        """Write atomically."""
        self._reading.abort()
        try:
            self._in_room(lambda: self._write(write))
        finally:
            self._reading = self._env.begin()

    def clear(self, store: str) -> None:
        """Delete all data of a store: entries, marks, checkpoint and topic id."""
        stale = [_MARK + store.encode() + b"/" + key for key in self.marks(store)]
        self._reading.abort()
        with self._env.begin(write=True) as transaction:
            for db in (self._dbs[store], self._odd[store]):
                transaction.drop(db, delete=False)
            for key in (*stale, _CHECKPOINT + store.encode(), _TOPIC_ID + store.encode()):
                transaction.delete(key, db=self._meta)
        self._reading = self._env.begin()

    def note_current(self) -> None:
        """Note that the stores have everything that is in their changelogs now, as a write does."""
        os.utime(self.directory / DATA_FILE)

    def close(self) -> None:
        """Flush to the device; the next start trusts it even after a machine crash."""
        self._reading.abort()
        self._env.sync(True)
        self._env.close()
        (self.directory / OPEN_MARK).unlink(missing_ok=True)

    def _write(self, write: Write) -> None:
        with self._env.begin(write=True) as transaction:
            for store, changes in write.changes.items():
                put: list[tuple[bytes, bytes]] = []
                # By key: neighbours share pages.
                for key, value in sorted(changes.items(), key=operator.itemgetter(0)):
                    if not 0 < len(key) <= KEY_BYTES_MAX:
                        self._write_odd(transaction, store, key, value)
                    elif value is None:
                        transaction.delete(key, db=self._dbs[store])
                    else:
                        put.append((key, value))
                transaction.cursor(db=self._dbs[store]).putmulti(put)
            for store, marks in write.marks.items():
                for key, value in marks.items():
                    transaction.put(_MARK + store.encode() + b"/" + key, value, db=self._meta)
            for store, offset in write.checkpoints.items():
                transaction.put(_CHECKPOINT + store.encode(), b"%d" % offset, db=self._meta)
            for store, topic_id in write.topic_ids.items():
                transaction.put(_TOPIC_ID + store.encode(), topic_id, db=self._meta)

    def _write_odd(self, transaction: lmdb.Transaction, store: str, key: bytes, value: bytes | None) -> None:
        if value is None:
            transaction.delete(_digest(key), db=self._odd[store])
        else:
            transaction.put(_digest(key), _KEY_LENGTH.pack(len(key)) + key + value, db=self._odd[store])

    def _in_room(self, work: Callable[[], None]) -> None:
        while True:
            try:
                work()
            except lmdb.MapFullError:
                self._env.set_mapsize(2 * self._env.info()["map_size"])
            else:
                return


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _unpack(row: bytes) -> tuple[bytes, bytes]:
    start = _KEY_LENGTH.size
    end = start + _KEY_LENGTH.unpack_from(row)[0]
    return row[start:end], row[end:]


def checkpoints_on_disk(directory: Path, stores: tuple[str, ...]) -> dict[str, int]:
    """Return the checkpoints of a task that is not running; empty if its stores cannot be trusted."""
    if not (directory / DATA_FILE).exists():
        return {}
    disk = TaskDisk(directory, stores)
    try:
        return {store: disk.checkpoint(store) for store in stores}
    finally:
        disk.close()


def _distrust_after_power_failure(directory: Path) -> None:
    mark = directory / OPEN_MARK
    if mark.exists() and mark.read_text() != _boot_id():
        shutil.rmtree(directory)


def _distrust_other_format(directory: Path) -> None:
    kept = directory / FORMAT_FILE
    if (directory / DATA_FILE).exists() and (not kept.exists() or kept.read_text() != FORMAT):
        shutil.rmtree(directory)


def _boot_id() -> str:
    """Return the machine's boot id; without one, machine crashes are not detected."""
    return BOOT_ID.read_text().strip() if BOOT_ID.exists() else ""
