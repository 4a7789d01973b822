"""The journaled ZooKeeper restores its state, except ephemeral znodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.controller.zk.journal import JournaledZooKeeper
from anabranch.controller.zk.session import BadVersion, Check, Create, Delete, Set
from anabranch.controller.zk.tree import ZnodeTree


def lasting(tree: ZnodeTree) -> dict[str, tuple[object, ...]]:
    """Everything but ephemerals."""
    return {
        path: (one.data, one.czxid, one.mzxid, one.version, one.created)
        for path, one in tree.nodes.items()
        if not one.owner
    }


async def test_restarted_zookeeper_continues_from_its_journal(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "journal"
    first = JournaledZooKeeper(path)
    session = await first.connect()
    await session.create("/a/b", b"\x00\xff\n", make_parents=True)
    await session.create("/a/s-", b"", sequence=True)
    await session.create("/a/e", b"gone", ephemeral=True)
    await session.set("/a/b", b"2")
    await session.multi([Create("/a/c", b"c"), Set("/a/b", b"3", 1), Delete("/a/s-0000000001")])
    with pytest.raises(BadVersion):
        await session.multi([Create("/a/d", b"never"), Check("/a/b", 99)])
    before, zxid = lasting(first.tree), first.tree.zxid
    first.close()

    second = JournaledZooKeeper(path)
    assert lasting(second.tree) == before
    assert second.tree.zxid >= zxid - 1, "the transaction that failed left no trace"
    session = await second.connect()
    assert await session.children("/a") == ["b", "c"]
    _, stat = await session.create_with_stat("/a/e", b"new", ephemeral=True)
    assert stat.czxid > max(one.mzxid for one in first.tree.nodes.values())
    assert await session.create("/a/s-", sequence=True) == "/a/s-0000000005"
    second.close()


async def test_truncated_line_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    first = JournaledZooKeeper(path)
    session = await first.connect()
    await session.create("/kept", b"1")
    first.close()
    path.write_text(path.read_text() + '[99,"/torn","x",9')
    second = JournaledZooKeeper(path)
    assert set(second.tree.nodes) == {"/", "/kept"}
    second.close()
