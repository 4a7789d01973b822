"""Keys follow their hash; records without a key never go to a sealed partition."""

from __future__ import annotations

import random

from anabranch.clients.producer.partitioner import Sticky, modulo
from anabranch.clients.producer.queues import TopicQueues
from anabranch.protocol.hashing import murmur2
from anabranch.protocol.lineage import Lineage


def test_keys_of_resized_topic_follow_its_lineage() -> None:
    for base in (1, 3, 5):
        for count in range(1, 40):
            lineage = Lineage(base, [(0, count)])
            queues = TopicQueues("t")
            queues.hash_over(lineage, range(count))
            for key_hash in range(400):
                assert queues.address(key_hash) == lineage.address(key_hash)


def test_without_lineage_kafka_modulo_applies() -> None:
    queues = TopicQueues("t")
    queues.hash_over(None, range(6))
    for number in range(300):
        key_hash = murmur2(str(number).encode())
        assert queues.address(key_hash) == modulo(key_hash, 6)


def test_lineage_and_modulo_agree_at_initial_count() -> None:
    for count in (1, 3, 4, 6, 8, 100):
        base = count // (count & -count)
        for key_hash in range(1000):
            assert Lineage(base, [(0, count)]).address(key_hash) == modulo(key_hash, count)


def test_sticky_partition_is_kept_until_moved_on() -> None:
    sticky = Sticky(random.Random(1))
    live = (0, 1, 2)
    first = sticky.current(live)
    assert {sticky.current(live) for _ in range(20)} == {first}
    sticky.move_on(live)
    assert sticky.current(live) != first


def test_sticky_partition_visits_all_live_partitions_only() -> None:
    sticky = Sticky(random.Random(1))
    seen = set()
    for _ in range(100):
        seen.add(sticky.current((0, 1, 2)))
        sticky.move_on((0, 1, 2))
    assert seen == {0, 1, 2}
    assert sticky.current((4,)) == 4
    sticky.move_on((4,))
    assert sticky.current((4,)) == 4
