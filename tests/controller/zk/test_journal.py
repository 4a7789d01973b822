"""The journaled ZooKeeper restores its state, except ephemeral znodes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from anabranch.controller.zk.journal import JournaledTree, read
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


async def test_disk_that_takes_a_part_of_a_line_keeps_the_journal_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, write = tmp_path / "journal", os.write
    free = [7, 7, 1000, 7, 0, 1000]

    def nearly_full(descriptor: int, data: bytes) -> int:
        if not (taken := free.pop(0)):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[:taken])

    tree = JournaledTree(path)
    monkeypatch.setattr("anabranch.controller.zk.journal.os.write", nearly_full)
    tree.transact(lambda: tree.create("/in-pieces", b"1", owner=0))
    whole = path.read_bytes()
    with pytest.raises(OSError, match="No space left"):
        tree.transact(lambda: tree.create("/refused", b"2", owner=0))
    assert path.read_bytes() == whole
    tree.transact(lambda: tree.create("/later", b"3", owner=0))
    monkeypatch.undo()
    tree.close()
    assert {"/in-pieces", "/later"} <= set(read(path.read_text()).nodes)


async def test_lines_without_times_are_read(tmp_path: Path) -> None:
    """Journals and snapshots from before znodes had times, and the transaction of their last child."""
    path = tmp_path / "journal"
    path.write_text('[3,"/",  "",0,0,0,1]\n[3,"/old","x",3,3,0,0]\n')
    tree = JournaledTree(path)
    assert (tree.node("/old").data, tree.node("/old").pzxid, tree.node("/old").ctime_ms) == (b"x", 0, 0)
    tree.close()
