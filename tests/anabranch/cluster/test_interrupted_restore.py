"""A restore that was interrupted leaves the old data, or is finished by the next start."""

from __future__ import annotations

from pathlib import Path

from anabranch.cluster.interrupted_restore import PARTIAL, RESTORING, finish_restore


def write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def test_incomplete_copy_is_removed_and_old_data_remains(tmp_path: Path) -> None:
    write(tmp_path / "node-1/log", "old")
    write(tmp_path / f"{RESTORING}{PARTIAL}/node-1/log", "ne")
    finish_restore(tmp_path)
    assert (tmp_path / "node-1/log").read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["node-1"]


def test_complete_copy_replaces_what_was_not_replaced_yet(tmp_path: Path) -> None:
    write(tmp_path / "node-1/log", "new, moved before the interruption")
    write(tmp_path / "node-2/log", "old")
    write(tmp_path / "node-2/later", "not in the snapshot")
    write(tmp_path / "zookeeper/data/version-2/log.1", "old")
    write(tmp_path / f"{RESTORING}/node-2/log", "new")
    write(tmp_path / f"{RESTORING}/zookeeper/version-2/log.1", "new")
    finish_restore(tmp_path)
    assert (tmp_path / "node-1/log").read_text() == "new, moved before the interruption"
    assert (tmp_path / "node-2/log").read_text() == "new" and not (tmp_path / "node-2/later").exists()
    assert (tmp_path / "zookeeper/data/version-2/log.1").read_text() == "new"
    assert not (tmp_path / RESTORING).exists()
    finish_restore(tmp_path)


def test_zookeeper_data_goes_to_its_own_directory(tmp_path: Path) -> None:
    write(tmp_path / f"cluster/{RESTORING}/zookeeper/version-2/log.1", "new")
    finish_restore(tmp_path / "cluster", tmp_path / "elsewhere/data")
    assert (tmp_path / "elsewhere/data/version-2/log.1").read_text() == "new"
