"""The metadata image: merged updates, removed topics, and no unpublished epoch (R12)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.broker.metadata import metadata_cache
from anabranch.broker.metadata.metadata_cache import (
    LEADER_DURING_DELETE,
    ClusterImage,
    MetadataCache,
    PartitionImage,
    TopicImage,
    apply_update,
    can_collide,
    gone,
    metric_name,
    visible,
)
from anabranch.protocol.apis.common_structs import GenerationStart, ReshardStep
from anabranch.protocol.apis.update_metadata import (
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
        image = apply_update(image, request)
    return image


def test_brokers_are_replaced_and_topics_merged() -> None:
    image = image_after(
        update(topic(partition(0), partition(1)), brokers=(1, 2)), update(topic(partition(1, epoch=5)), brokers=(2,))
    )
    assert set(image.brokers) == {2}
    assert (image.brokers[2].port, image.brokers[2].epoch) == (9002, 102)
    assert {index: one.leader_epoch for index, one in image.topics["t"].partitions.items()} == {0: 0, 1: 5}
    assert image.names == {ID_A: "t"}


def test_deleted_topic_is_removed_from_the_image() -> None:
    gone = [partition(index, leader=LEADER_DURING_DELETE) for index in (0, 1)]
    image = image_after(update(topic(partition(0), partition(1))), update(topic(*gone)))
    assert image.topics == {}
    assert image.names == {}


def test_recreated_topic_replaces_its_predecessor() -> None:
    image = image_after(
        update(topic(partition(0), partition(1, epoch=9), generation=3)), update(topic(partition(0), topic_id=ID_B))
    )
    assert set(image.topics["t"].partitions) == {0}
    assert image.topics["t"].generation == 0
    assert image.names == {ID_B: "t"}


def test_full_update_removes_unnamed_topics() -> None:
    image = image_after(update(topic(partition(0))), update(topic(partition(0), name="u", topic_id=ID_B), type=2))
    assert set(image.topics) == {"u"}
    assert image.names == {ID_B: "u"}


def test_image_is_complete_from_the_first_full_update_on() -> None:
    partial, full = update(topic(partition(0))), update(topic(partition(0)), type=2)
    seen = [image_after(*updates).complete for updates in ((), (partial,), (full,), (full, partial))]
    assert seen == [False, False, True, True]


def test_full_update_removes_unnamed_partitions() -> None:
    image = image_after(update(topic(partition(0), partition(1))), update(topic(partition(0)), type=2))
    assert set(image.topics["t"].partitions) == {0}


def test_ungrouped_partitions_of_old_versions_are_grouped() -> None:
    rows = [partition(0, topic_name="a"), partition(0, topic_name="b"), partition(1, topic_name="a")]
    image = image_after(update(ungrouped_partition_states=rows))
    assert {name: len(one.partitions) for name, one in image.topics.items()} == {"a": 2, "b": 1}


def test_epoch_of_an_unpublished_generation_is_not_visible() -> None:
    """R12: raises the parent's epoch and creates the child before the topic's generation is published."""
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

    published = apply_update(image, update(topic(generation=1, history=[ReshardStep(generation=1, count=2)])))
    shown = published.topics["t"].partitions
    assert {index: one.leader_epoch for index, one in shown.items()} == {0: 6, 1: 0}, "publishing needs no partitions"
    assert shown[0].gen_start == ((0, 0), (1, 5))


def test_update_of_an_older_generation_does_not_override_a_resize() -> None:
    image = image_after(update(topic(partition(0, epoch=5), generation=2)), update(topic(partition(0), generation=1)))
    assert (image.topics["t"].generation, image.topics["t"].partitions[0].leader_epoch) == (2, 5)


def test_update_without_private_fields_keeps_them() -> None:
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
def test_random_updates_keep_invariant_r12(steps: list[tuple[int, int]], generation: int, later: int) -> None:
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


async def test_wait_until_completes_when_its_condition_holds() -> None:
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


# ------------------------------------------------------------------------------------------ what an update costs


def gone_partition(index: int = 0) -> UpdateMetadataPartitionState:
    return partition(index, leader=LEADER_DURING_DELETE)


@pytest.mark.parametrize("count", [10, 1000])
def test_update_visits_only_its_own_partitions(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """An ISR change must not cost a scan of a large topic."""
    image = image_after(update(topic(*(partition(index) for index in range(count)))))
    looked: list[int] = []

    def noted(one: PartitionImage, generation: int) -> PartitionImage | None:
        looked.append(one.index)
        return visible(one, generation)

    monkeypatch.setattr(metadata_cache, "visible", noted)
    image = apply_update(image, update(topic(partition(3, epoch=1), gone_partition(5))))
    assert looked == [3]
    shown = image.topics["t"].partitions
    assert list(shown) == [one for one in range(count) if one != 5] and shown[3].leader_epoch == 1
    image = apply_update(image, update(topic(partition(3, epoch=1), generation=1)))
    assert len(looked) == count, "another generation may show of any of them what was hidden"


@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from([(), ((0, 0), (1, 1)), ((1, 1),)]), st.integers(0, 1))),
    st.integers(0, 1),
)
def test_one_update_and_many_updates_yield_the_same_image(
    told: list[tuple[int, tuple[tuple[int, int], ...], int]], generation: int
) -> None:
    """Unchanged rows must equal freshly computed ones."""
    rows = [partition(index, leader=1 - 3 * gone, epoch=1, starts=starts) for index, starts, gone in told]
    one_by_one = image_after(*(update(topic(row, generation=generation)) for row in rows))
    at_the_end: dict[int, UpdateMetadataPartitionState] = {}
    for row in rows:
        at_the_end.pop(row.partition_index, None)
        if row.leader != LEADER_DURING_DELETE:
            at_the_end[row.partition_index] = row
    at_once = image_after(update(topic(*(at_the_end[index] for index in sorted(at_the_end)), generation=generation)))
    assert [*one_by_one.topics.items()] == [*at_once.topics.items()]
    if at_once.topics:
        shown = one_by_one.topics["t"].partitions
        assert list(shown) == sorted(shown)


class Untraversed(dict[str, TopicImage]):
    """A dict that may be read and copied, but not iterated."""

    def __iter__(self) -> Any:
        raise AssertionError("all topics are gone through")

    items = values = __iter__

    def copy(self) -> Untraversed:
        return Untraversed(super().items())


def test_update_does_not_iterate_over_other_topics() -> None:
    image = image_after(update(topic(partition(0), name="a.b"), topic(partition(0), name="c")))
    known = ClusterImage(image.brokers, Untraversed(image.topics.items()), image.names, image.alike, 1, True)
    request = update(topic(gone_partition(), name="c"), topic(partition(0), name="d", topic_id=ID_B))
    after = apply_update(known, request)
    assert gone(known, after, request) == {"c": image.topics["c"].topic_id}
    assert "d" in after.topics and "c" not in after.topics


def test_on_gone_receives_deleted_and_replaced_topics() -> None:
    cache = MetadataCache()
    notified: list[dict[str, bytes]] = []
    cache.on_gone(lambda lost: notified.append(dict(lost)))
    cache.apply(update(*(topic(partition(0), name=name, topic_id=name.encode() * 16) for name in "abcd")))
    cache.apply(update(topic(partition(0, epoch=3), name="a", topic_id=b"a" * 16)))
    assert not notified
    cache.apply(update(topic(gone_partition(), name="a"), topic(partition(0), name="b", topic_id=ID_B)))
    assert notified == [{"a": b"a" * 16, "b": b"b" * 16}]
    cache.apply(update(topic(partition(0), name="d", topic_id=b"d" * 16), type=2))
    assert notified[1:] == [{"b": ID_B, "c": b"c" * 16}], "a full update names what there is"


NAMES = ["a.b", "a_b", "a.b.c", "a_b.c", "ab", "a-b"]


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.booleans()), max_size=12))
def test_colliding_topic_names_are_tracked(changes: list[tuple[str, bool]]) -> None:
    image = ClusterImage()
    for name, there in changes:
        image = apply_update(image, update(topic(partition(0) if there else gone_partition(), name=name)))
        for candidate in filter(can_collide, NAMES):
            alike = {other for other in image.topics if metric_name(other) == metric_name(candidate)}
            assert set(image.alike.get(metric_name(candidate), ())) == alike
        assert all(image.alike.values()), "nothing is kept of topics that are gone"
