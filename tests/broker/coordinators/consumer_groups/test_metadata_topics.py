"""Topics of the metadata image as seen by groups."""

from __future__ import annotations

import dataclasses

from anabranch.broker.coordinators.consumer_groups.metadata_topics import MetadataTopics, added_partitions
from anabranch.broker.coordinators.consumer_groups.subscribed_topics import Topic
from anabranch.broker.metadata.metadata_cache import ClusterImage, MetadataCache, PartitionImage, TopicImage


def image(*topics: TopicImage, complete: bool = True) -> ClusterImage:
    return ClusterImage(
        topics={one.name: one for one in topics}, names={one.topic_id: one.name for one in topics}, complete=complete
    )


def topic(name: str, count: int) -> TopicImage:
    partitions = {index: PartitionImage(index, 1, 0, (1,), (1,), (), 0) for index in reversed(range(count))}
    return TopicImage(name, name.encode().ljust(16), partitions)


def test_topics_have_the_partitions_of_the_metadata_image() -> None:
    cache = MetadataCache()
    topics = MetadataTopics(cache)
    assert not topics.complete
    cache.image = image(topic("t", 3))
    seen = topics.of("g")
    assert topics.complete and seen.image is cache.image
    assert seen.find("t") == Topic(b"t".ljust(16), "t", (0, 1, 2)) and seen.find("u") is None
    assert (seen.name_of(b"t".ljust(16)), seen.name_of(b"u".ljust(16)), list(seen.names())) == ("t", None, ["t"])


def test_partitions_can_be_gated_for_one_group() -> None:
    cache = MetadataCache()
    cache.image = image(topic("t", 3))
    topics = MetadataTopics(cache, lambda group_id, one: (0, 2) if group_id == "g" else tuple(sorted(one.partitions)))
    partitions = [found.partitions for name in "gh" if (found := topics.of(name).find("t")) is not None]
    assert partitions == [(0, 2), (0, 1, 2)]


def test_only_new_topics_advance_newest_topic() -> None:
    cache = MetadataCache()
    topics = MetadataTopics(cache)
    cache.image = image(topic("t", 1))
    first = topics.of("g").newest_topic
    cache.image = image(topic("t", 2))
    assert topics.of("g").newest_topic == first
    cache.image = image(topic("t", 2), topic("u", 1))
    assert topics.of("g").newest_topic == first + 1
    cache.image = image(topic("u", 1))
    assert topics.of("g").newest_topic == first + 1


def test_added_partitions_are_those_of_resizes_that_exist_now() -> None:
    assert added_partitions(topic("t", 3)) == {}
    grown = dataclasses.replace(topic("t", 4), base=1, history=((0, 2), (1, 6), (2, 1), (3, 4)))
    assert added_partitions(grown) == {1: 0, 2: 0, 3: 1}
