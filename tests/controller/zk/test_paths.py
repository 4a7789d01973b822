"""Paths are Kafka's, and consistent."""

from __future__ import annotations

from anabranch.controller.zk import paths


def test_paths_equal_those_of_kafka() -> None:
    assert paths.partition_state("t", 3) == "/brokers/topics/t/partitions/3/state"
    assert paths.partition_state("t", 3) == paths.state_below(paths.partition("t", 3))
    assert paths.config("topics/t") == paths.topic_config("t") == "/config/topics/t"
    assert paths.consumer_offset("g", "t", 0) == "/consumers/g/offsets/t/0"
    assert (paths.broker(7), paths.delete_topic("t")) == ("/brokers/ids/7", "/admin/delete_topics/t")


def test_path_is_its_parent_and_name() -> None:
    for path in (paths.partition_state("t", 3), paths.topic("t"), *paths.ALWAYS_CREATED):
        assert f"{paths.parent(path).rstrip('/')}/{paths.name(path)}" == path
    assert paths.parent("/controller") == paths.parent("/") == "/"


def test_always_created_paths_are_unique_and_include_broker_paths() -> None:
    assert len(set(paths.ALWAYS_CREATED)) == len(paths.ALWAYS_CREATED)
    assert {paths.BROKER_IDS, paths.TOPICS, paths.TOPIC_CONFIGS, paths.DELETE_TOPICS} <= set(paths.ALWAYS_CREATED)
