"""The journaled ZooKeeper restores its state, except ephemeral znodes."""

from __future__ import annotations

import errno
import os
from functools import partial
from pathlib import Path

import pytest

from anabranch.controller.zk.journal import JournalDamaged, JournaledTree
from anabranch.controller.zk.memory import MemoryZooKeeper
from anabranch.controller.zk.session import BadVersion, Check, Create, Delete, Set
from anabranch.controller.zk.tree import ZnodeTree


def lasting(tree: ZnodeTree) -> dict[str, tuple[object, ...]]:
    """Everything but ephemerals."""
    return {
        path: (one.data, one.czxid, one.mzxid, one.version, one.created, one.pzxid, one.ctime_ms, one.mtime_ms)
        for path, one in tree.nodes.items()
        if not one.owner
    }


def close(zookeeper: MemoryZooKeeper) -> None:
    assert isinstance(zookeeper.tree, JournaledTree)
    zookeeper.tree.close()


async def test_restarted_zookeeper_continues_from_its_journal(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "journal"
    first = MemoryZooKeeper(JournaledTree(path))
    first.tree.now_ms = 1_700_000_000_000
    session = await first.connect()
    await session.create("/a/b", b"\x00\xff\n", make_parents=True)
    await session.create("/a/s-", b"", sequence=True)
    await session.create("/a/e", b"gone", ephemeral=True)
    await session.set("/a/b", b"2")
    await session.multi([Create("/a/c", b"c"), Set("/a/b", b"3", 1), Delete("/a/s-0000000001")])
    with pytest.raises(BadVersion):
        await session.multi([Create("/a/d", b"never"), Check("/a/b", 99)])
    before, zxid = lasting(first.tree), first.tree.zxid
    close(first)

    second = MemoryZooKeeper(JournaledTree(path))
    assert lasting(second.tree) == before
    assert second.tree.zxid >= zxid - 1, "the transaction that failed left no trace"
    session = await second.connect()
    assert await session.children("/a") == ["b", "c"]
    _, stat = await session.create_with_stat("/a/e", b"new", ephemeral=True)
    assert stat.czxid > max(one.mzxid for one in first.tree.nodes.values())
    assert await session.create("/a/s-", sequence=True) == "/a/s-0000000005"
    close(second)


def test_journal_can_be_read_by_its_owner_alone(tmp_path: Path) -> None:
    """It holds credentials."""
    path = tmp_path / "deep" / "journal"
    for _ in range(2):
        JournaledTree(path).close()
        assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


async def test_truncated_line_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    first = MemoryZooKeeper(JournaledTree(path))
    session = await first.connect()
    await session.create("/kept", b"1")
    close(first)
    path.write_text(path.read_text() + '[99,"/torn","x",9')
    second = MemoryZooKeeper(JournaledTree(path))
    assert set(second.tree.nodes) == {"/", "/kept"}
    close(second)


def with_transactions(path: Path, count: int) -> list[bytes]:
    """A journal with so many znodes; its content after each transaction."""
    tree = JournaledTree(path)
    contents = [path.read_bytes()]
    for number in range(count):
        tree.transact(partial(tree.create, f"/n{number}", b"x" * 30, owner=0))
        contents.append(path.read_bytes())
    tree.close()
    return contents


@pytest.mark.parametrize("left_bytes", range(1, 95, 7))
def test_incomplete_transaction_is_ignored_as_a_whole(left_bytes: int, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    *_, before, after = with_transactions(path, 3)
    added = after[len(before) :]
    assert len(added.splitlines()) == 3, "the znode, its parent, and the end"
    for rest in (added[:left_bytes], added[:left_bytes].ljust(len(added), b"\0")):
        path.write_bytes(before + rest)
        tree = JournaledTree(path)
        assert sorted(tree.nodes) == ["/", "/n0", "/n1"]
        tree.transact(partial(tree.create, "/later", b"", owner=0))
        tree.close()
        again = JournaledTree(path)
        assert sorted(again.nodes) == ["/", "/later", "/n0", "/n1"]
        again.close()


@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_journal_with_a_flipped_bit_before_valid_transactions_is_refused(damaged: int, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    contents = [b"", *with_transactions(path, 3)]
    rotten = bytearray(contents[-1])
    rotten[(len(contents[damaged]) + len(contents[damaged + 1])) // 2] ^= 4
    path.write_bytes(rotten)
    with pytest.raises(JournalDamaged, match=r"is damaged .* restore a copy"):
        JournaledTree(path)
    assert path.read_bytes() == rotten, "for whoever looks at it"
    path.write_bytes(contents[-1])
    JournaledTree(path).close()  # the lock was released


@pytest.mark.parametrize("call", ["write", "fdatasync"])
def test_transaction_that_cannot_be_stored_has_not_happened(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal"
    tree, real = JournaledTree(path), os.write

    def fail(descriptor: int, data: bytes = b"") -> int:
        if data:
            real(descriptor, bytes(data)[:20])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(OSError, match="No space left"):
            tree.transact(partial(tree.create, "/a", b"", owner=0))
    assert "/a" not in tree.nodes
    tree.transact(partial(tree.create, "/b", b"", owner=0))
    before = lasting(tree)
    tree.close()
    again = JournaledTree(path)
    assert lasting(again) == before
    again.close()


def test_disk_that_takes_a_part_at_a_time_keeps_the_journal_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, write = tmp_path / "journal", os.write
    free = [7, 7, 1000, 7, 0, 1000]

    def nearly_full(descriptor: int, data: bytes) -> int:
        if not (taken := free.pop(0)):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[:taken])

    tree = JournaledTree(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", nearly_full)
        tree.transact(lambda: tree.create("/in-pieces", b"1", owner=0))
        whole = path.read_bytes()
        with pytest.raises(OSError, match="No space left"):
            tree.transact(lambda: tree.create("/refused", b"2", owner=0))
        assert path.read_bytes() == whole
        tree.transact(lambda: tree.create("/later", b"3", owner=0))
    tree.close()
    again = JournaledTree(path)
    assert sorted(again.nodes) == ["/", "/in-pieces", "/later"]
    again.close()


async def test_lines_without_times_are_read(tmp_path: Path) -> None:
    """Journals and snapshots from before znodes had times, and the transaction of their last child."""
    path = tmp_path / "journal"
    path.write_text('[3,"/",  "",0,0,0,1]\n[3,"/old","x",3,3,0,0]\n')
    tree = JournaledTree(path)
    assert (tree.node("/old").data, tree.node("/old").pzxid, tree.node("/old").ctime_ms) == (b"x", 0, 0)
    tree.close()
