"""The coordinator's view of a topic from metadata and leaders' responses."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.config.effective_config import topic_config
from anabranch.broker.coordinators.gates.gated_topic import GatedTopic, LeaderAnswer, are_held
from anabranch.broker.metadata.metadata_cache import PartitionImage, TopicImage
from anabranch.protocol.lineage import KeyEpoch, Lineage
from anabranch.protocol.order_gates import UNKNOWN

PARENT = KeyEpoch(0, 0)


def image(*counts: int, epochs: Mapping[int, int] | None = None) -> TopicImage:
    """A topic resized through `counts`; leader epochs equal its generations by default."""
    history = tuple(enumerate(counts))
    lineage = Lineage(1, history)
    partitions = {
        index: PartitionImage(
            index=index,
            leader=1,
            leader_epoch=(epochs or {}).get(index, lineage.class_generation(index)),
            isr=(1,),
            replicas=(1,),
            offline_replicas=(),
            partition_epoch=0,
            gen_start=tuple((one, one) for one in lineage.class_generations(index)),
        )
        for index in range(max(counts))
    }
    return TopicImage("t", b"t" * 16, partitions, generation=len(counts) - 1, history=history, base=1)


def leader_answer(ends: Mapping[KeyEpoch, int], *, start: int = 0, epoch: int = 9) -> LeaderAnswer:
    return LeaderAnswer(epoch, start, ends, ends)


def withheld(topic: GatedTopic, **committed: int) -> dict[int, list[str]]:
    found = topic.withheld(lambda index: committed.get(f"p{index}", UNKNOWN))
    return {index: list(map(str, waits)) for index, waits in found.items()}


def test_unknown_key_epoch_end_keeps_a_gate_closed() -> None:
    topic = GatedTopic(image(1, 2))
    assert topic.unknown_key_epochs() == [0, 1]
    assert withheld(topic, p0=99) == {1: ["0@0 to reach an end not yet known (committed: 99)"]}
    topic.record_answer(0, leader_answer({PARENT: 5}))
    assert topic.unknown_key_epochs() == [1]
    assert withheld(topic, p0=4) == {1: ["0@0 to reach offset 5 (committed: 4)"]}
    assert withheld(topic, p0=5) == {}


def test_answer_of_an_older_leader_epoch_is_ignored() -> None:
    topic = GatedTopic(image(1, 2))
    topic.record_answer(0, leader_answer({PARENT: 5}, epoch=1))
    assert withheld(topic, p0=5) == {}
    topic.refresh(image(1, 2, epochs={0: 2}))
    assert topic.unknown_key_epochs() == [0, 1]
    assert list(withheld(topic, p0=5)) == [1]


def test_lineage_is_computed_again_only_if_it_changes() -> None:
    """A topic of thousands of partitions has a new leader with each broker that stops."""
    whole = image(1, 2)
    partly = dataclasses.replace(whole, partitions={0: whole.partitions[0]})
    topic = GatedTopic(partly)
    assert withheld(topic) == {}
    topic.refresh(whole)
    assert list(withheld(topic)) == [1], "its metadata came later"
    known = topic.lineage
    topic.refresh(image(1, 2, epochs={0: 2}))
    assert topic.lineage is known and topic.image.partitions[0].leader_epoch == 2
    topic.refresh(image(1, 2, 4))
    assert list(withheld(topic)) == [1, 2, 3]


def test_only_resized_partitions_are_affected() -> None:
    topic = GatedTopic(image(2, 3))
    assert topic.affected_partitions() == [0, 2]
    assert topic.cuts_of(0) == [(PARENT, 1)]
    assert topic.cuts_of(2) == []


def test_children_start_for_groups_with_a_commit_on_their_parents() -> None:
    topic = GatedTopic(image(1, 2, 4))
    children = topic.children(0)
    assert children == {KeyEpoch(1, 1): 0, KeyEpoch(2, 2): 0, KeyEpoch(3, 2): 1}
    assert topic.children(1) == {KeyEpoch(2, 2): 0, KeyEpoch(3, 2): 1}
    assert topic.children(2) == {}

    def starts(*, was_there: bool = False, **committed: int) -> dict[int, int] | None:
        return topic.starts(children, lambda index: committed.get(f"p{index}", UNKNOWN), was_there=was_there)

    assert starts(p0=3) is None, "it is not known where their logs begin"
    assert starts() == {}, "it has committed nothing: its reset policy decides"
    for index, start in ((1, 7), (2, 0), (3, 0)):
        topic.record_answer(index, leader_answer({}, start=start))
    assert starts(p0=3) == {1: 7, 2: 0, 3: 0}
    assert starts(p0=3, p2=5) == {1: 7, 3: 0}
    assert starts(p0=3, p1=1, p2=0, p3=0) == {}, "what has expired is not the coordinator's to skip"
    assert starts(was_there=True) == {1: 7, 2: 0, 3: 0}


def test_stale_commit_of_a_recreated_index_is_moved_to_the_log_start() -> None:
    topic = GatedTopic(image(2, 1, 2))
    topic.record_answer(1, leader_answer({}, start=30))
    children = topic.children(1)
    assert children == {KeyEpoch(1, 2): 0}
    committed = {0: 9, 1: 12}
    assert topic.starts(children, lambda index: committed[index], was_there=True) == {1: 30}


def test_deleted_ahead_returns_log_starts_beyond_the_commit() -> None:
    topic = GatedTopic(image(1, 4))
    for index, start in ((0, 7), (1, 5), (2, 0)):
        topic.record_answer(index, leader_answer({}, start=start))
    committed = {0: 6, 1: 5, 2: UNKNOWN, 3: UNKNOWN}
    assert topic.deleted_ahead(range(4), committed.__getitem__) == {0: 7}, "3 has not been asked about"
    assert topic.deleted_ahead([0], lambda _: UNKNOWN) == {0: 7}


@pytest.mark.parametrize(
    ("properties", "ungenerated", "generated"),
    [
        ({}, False, True),
        ({"reshard.legacy.producers": "verify"}, True, True),
        ({"reshard.legacy.producers": "verify", "enable.ordered.delivery": "false"}, False, False),
        ({"reshard.legacy.consumers": "gate", "enable.ordered.delivery": "false"}, True, True),
        ({"reshard.legacy.consumers": "ignore"}, False, False),
    ],
)
def test_configuration_and_generations_select_the_gated_topics(
    properties: dict[str, str], ungenerated: bool, generated: bool
) -> None:
    config = topic_config(BrokerSettings(), properties)
    assert are_held(config, has_generations=False) is ungenerated
    assert are_held(config, has_generations=True) is generated
