"""Histories of topics, read from a real cluster and kept in a file."""

from __future__ import annotations

from pathlib import Path

from anabranch.protocol.lineage import Lineage
from anabranch.spark_jobs import lineages
from tests.spark_jobs.live import LiveCluster


def test_lineage_of_resized_topic_is_read_and_saved(live: LiveCluster, tmp_path: Path) -> None:
    topic, plain = live.create("lineage", 4), live.create("lineage-plain", 2)
    live.grow(topic, 6)
    found = lineages.ask(live.servers, [topic, plain, topic, "absent"])
    assert found[topic] == Lineage(1, [(0, 4), (1, 6)])
    assert "absent" not in found
    path = tmp_path / "lineages.json"
    assert lineages.load(path) == {}
    lineages.save(path, {topic: found[topic]})
    lineages.save(path, {"other": Lineage(3, [(0, 3)])})
    assert lineages.load(path) == {topic: found[topic], "other": Lineage(3, [(0, 3)])}
