"""Watches are triggered once, in the order of registration, by the changes that they wait for."""

from __future__ import annotations

from anabranch.controller.zk.session import WatchEvent
from anabranch.controller.zk.watch_manager import WatchManager


def test_data_and_children_watches_are_triggered_by_their_changes() -> None:
    watches: WatchManager[str] = WatchManager()
    for watcher in ("b", "a", "b"):
        watches.watch_data("/n", watcher)
    watches.watch_children("/n", "c")
    assert watches.trigger(WatchEvent("/other", "changed")) == []
    assert watches.trigger(WatchEvent("/n", "changed")) == ["b", "a"]
    assert watches.trigger(WatchEvent("/n", "changed")) == []
    assert watches.trigger(WatchEvent("/n", "children")) == ["c"]
    watches.watch_data("/n", "d")
    watches.watch_children("/n", "d")
    assert watches.trigger(WatchEvent("/n", "deleted")) == ["d", "d"]


def test_removed_watchers_are_not_triggered() -> None:
    watches: WatchManager[str] = WatchManager()
    watches.watch_data("/n", "a")
    watches.watch_children("/m", "a")
    watches.watch_data("/n", "b")
    assert sorted(watches.remove(lambda watcher: watcher == "a")) == ["a", "a"]
    assert watches.trigger(WatchEvent("/m", "children")) == []
    assert watches.trigger(WatchEvent("/n", "created")) == ["b"]
