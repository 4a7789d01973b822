"""The metadata image: merging updates, forgetting topics, and never showing an unpublished epoch (R12)."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from anabranch.broker.metadata_cache import (
    LEADER_DURING_DELETE,
    ClusterImage,
    MetadataCache,
    PartitionImage,
    applied,
    visible,
)
from anabranch.protocol.apis.update_metadata import (
    GenerationStart,
    ReshardStep,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

ID_A = bytes([1]) * 16
ID_B = bytes([2]) * 16


def partition(
    index: int, *, leader: int = 1, epoch: int = 0, starts: tuple[tuple[int, int], ...] = (), **fields: Any
) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(
        partition_index=index,
        controller_epoch=1,
        leader=leader,
        leader_epoch=epoch,
        isr=[1],
        zk_version=0,
        replicas=[1, 2],
        gen_start=[GenerationStart(generation=g, leader_epoch=e) for g, e in starts],
        **fields,
    )


def topic(
    *partitions: UpdateMetadataPartitionState,
    name: str = "t",
    topic_id: bytes = ID_A,
    generation: int = 0,
    **fields: Any,
) -> UpdateMetadataTopicState:
    return UpdateMetadataTopicState(
        topic_name=name, topic_id=topic_id, partition_states=list(partitions), generation=generation, **fields
    )


def update(*topics: UpdateMetadataTopicState, brokers: tuple[int, ...] = (1,), **fields: Any) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=1,
        topic_states=list(topics),
        live_brokers=[
            UpdateMetadataBroker(
                id=broker,
                endpoints=[
                    UpdateMetadataEndpoint(port=9000 + broker, host="h", listener="PLAINTEXT", security_protocol=0)
                ],
                broker_epoch=100 + broker,
            )
            for broker in brokers
        ],
        **fields,
    )


def image_after(*requests: UpdateMetadataRequest) -> ClusterImage:
    image = ClusterImage()
    for request in requests:
        image = applied(image, request)
    return image


def test_brokers_are_replaced_and_topics_merged() -> None:
    image = image_after(
        update(topic(partition(0), partition(1)), brokers=(1, 2)), update(topic(partition(1, epoch=5)), brokers=(2,))
    )
    assert set(image.brokers) == {2}
    assert (image.brokers[2].port, image.brokers[2].epoch) == (9002, 102)
    assert {index: one.leader_epoch for index, one in image.topics["t"].partitions.items()} == {0: 0, 1: 5}
    assert image.names == {ID_A: "t"}


def test_a_deleted_topic_leaves_nothing() -> None:
    gone = [partition(index, leader=LEADER_DURING_DELETE) for index in (0, 1)]
    image = image_after(update(topic(partition(0), partition(1))), update(topic(*gone)))
    assert image.topics == {}
    assert image.names == {}


def test_a_name_that_is_created_again_starts_anew() -> None:
    image = image_after(
        update(topic(partition(0), partition(1, epoch=9), generation=3)), update(topic(partition(0), topic_id=ID_B))
    )
    assert set(image.topics["t"].partitions) == {0}
    assert image.topics["t"].generation == 0
    assert image.names == {ID_B: "t"}


def test_a_full_update_forgets_what_it_does_not_name() -> None:
    image = image_after(update(topic(partition(0))), update(topic(partition(0), name="u", topic_id=ID_B), type=2))
    assert set(image.topics) == {"u"}
    assert image.names == {ID_B: "u"}


def test_what_was_told_is_complete_from_the_first_full_update_on() -> None:
    partial, full = update(topic(partition(0))), update(topic(partition(0)), type=2)
    seen = [image_after(*told).complete for told in ((), (partial,), (full,), (full, partial))]
    assert seen == [False, False, True, True]


def test_a_full_update_forgets_partitions_that_were_removed_while_this_broker_was_away() -> None:
    image = image_after(update(topic(partition(0), partition(1))), update(topic(partition(0)), type=2))
    assert set(image.topics["t"].partitions) == {0}


def test_versions_without_grouping_are_grouped() -> None:
    rows = [partition(0, topic_name="a"), partition(0, topic_name="b"), partition(1, topic_name="a")]
    image = image_after(update(ungrouped_partition_states=rows))
    assert {name: len(one.partitions) for name, one in image.topics.items()} == {"a": 2, "b": 1}


def test_an_epoch_of_an_unpublished_generation_is_not_shown() -> None:
    """Goal: R12. Method: raise the parent's epoch and create the child before the topic's generation is published."""
    before = update(topic(partition(0, epoch=4, starts=((0, 0),))))
    bumped = update(
        topic(
            partition(0, epoch=6, leader=2, starts=((0, 0), (1, 5)), generation=1),
            partition(1, epoch=0, starts=((1, 0),), generation=1),
        ),
    )
    image = image_after(before, bumped)
    shown = image.topics["t"].partitions
    assert set(shown) == {0}, "the child is hidden"
    assert (shown[0].leader, shown[0].leader_epoch, shown[0].generation, shown[0].gen_start) == (2, 4, 0, ((0, 0),))

    published = applied(image, update(topic(generation=1, history=[ReshardStep(generation=1, count=2)])))
    shown = published.topics["t"].partitions
    assert {index: one.leader_epoch for index, one in shown.items()} == {0: 6, 1: 0}, "publishing needs no partitions"
    assert shown[0].gen_start == ((0, 0), (1, 5))


def test_an_update_older_than_the_last_resize_does_not_take_it_back() -> None:
    image = image_after(update(topic(partition(0, epoch=5), generation=2)), update(topic(partition(0), generation=1)))
    assert (image.topics["t"].generation, image.topics["t"].partitions[0].leader_epoch) == (2, 5)


def test_an_update_without_our_fields_keeps_them() -> None:
    image = image_after(
        update(topic(partition(0), generation=2, base=4, min_insync_replicas=2)),
        update(topic(partition(0, epoch=3), generation=-1)),
    )
    one = image.topics["t"]
    assert (one.generation, one.base, one.min_insync_replicas, one.partitions[0].leader_epoch) == (2, 4, 2, 3)


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), min_size=0, max_size=5),
    st.integers(0, 12),
    st.integers(-1, 15),
)
def test_no_image_breaks_r12(steps: list[tuple[int, int]], generation: int, later: int) -> None:
    starts, last_generation, epoch = [(0, 0)], 0, 0
    for more_generations, more_epochs in steps:
        last_generation, epoch = last_generation + more_generations, epoch + more_epochs
        starts.append((last_generation, epoch))
    raw = PartitionImage(0, 1, epoch + max(later, 0), (1,), (1,), (), 0, last_generation, tuple(starts))
    shown = visible(raw, generation)
    assert shown is not None
    for start_generation, start_epoch in starts:
        assert not (start_generation > generation and shown.leader_epoch >= start_epoch)
        assert (start_generation <= generation) == ((start_generation, start_epoch) in shown.gen_start)


async def test_waiters_wake_when_their_condition_holds() -> None:
    cache = MetadataCache()
    waiting = asyncio.ensure_future(cache.wait_until(lambda image: 2 in image.brokers, 60_000))
    await asyncio.sleep(0)
    cache.apply(update())
    await asyncio.sleep(0)
    assert not waiting.done()
    cache.apply(update(brokers=(1, 2)))
    assert await waiting
    assert not await cache.wait_until(lambda image: 3 in image.brokers, 1)
    assert not await cache.wait_until(lambda image: 3 in image.brokers, 0)


def test_listeners_see_before_and_after() -> None:
    cache = MetadataCache()
    seen: list[tuple[int, int]] = []
    cache.on_change(lambda before, after: seen.append((len(before.topics), len(after.topics))))
    cache.apply(update(topic(partition(0))))
    assert seen == [(0, 1)]
