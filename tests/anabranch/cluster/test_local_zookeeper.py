"""A local ZooKeeper names what it needs and does not find."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.cluster import local_zookeeper
from anabranch.cluster.local_zookeeper import LocalZooKeeper, why_unavailable
from anabranch.cluster.zookeeper import ZooKeeperUnavailable
from anabranch.spark_jobs.java import Java, JavaMissing


def test_missing_java_is_reported_with_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def missing() -> Java:
        raise JavaMissing("no Java: install it")

    monkeypatch.setattr("anabranch.spark_jobs.java.find", missing)
    reason = why_unavailable()
    assert reason == (
        "a local ZooKeeper cannot run: no Java: install it; or name a running ensemble with --zookeeper HOST:PORT"
    )
    with pytest.raises(ZooKeeperUnavailable, match="no Java: install it"), LocalZooKeeper():
        pass
    assert list(tmp_path.iterdir()) == [], "what it made is removed"


def test_missing_jars_are_reported_with_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_zookeeper.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ZooKeeperUnavailable, match=r"pip install 'anabranch\[audit\]'"):
        local_zookeeper.class_path()
