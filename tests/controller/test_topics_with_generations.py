"""The mark of batches with generations: one conditional write, known to all, and permanent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anabranch.controller import events
from anabranch.controller.model import TopicBody
from anabranch.controller.zk import znodes
from anabranch.protocol.apis.alter_partition import AlterPartitionRequest, TopicData
from anabranch.protocol.apis.leader_and_isr import LeaderAndIsrRequest
from anabranch.protocol.apis.update_metadata import UpdateMetadataRequest
from anabranch.protocol.errors import ErrorCode
from tests.controller.test_alter_partition import TOPIC_ID
from tests.controller.world import Crash, Term, World, started


def ask(world: World, term: Term, *, topic_id: bytes = TOPIC_ID, name: str = "", epoch: int | None = None) -> Any:
    topic = TopicData(topic_name=name, topic_id=topic_id, partitions=[], has_generations=True)
    known = world.brokers[1].epoch if epoch is None else epoch
    request = AlterPartitionRequest(broker_id=1, broker_epoch=known, topics=[topic])
    term.happen(events.AlterPartitionRequested(7, request))
    return term.replies.pop(7)


def written(world: World) -> bool:
    return world.topics["t"].body.has_generations


def sent_marks(world: World, kind: type[Any], since: int) -> list[bool]:
    """What brokers were told of the topic, by requests of one kind."""
    requests = [request for _, request in world.sent[since:] if isinstance(request, kind)]
    return [topic.has_generations for request in requests for topic in request.topic_states]


def test_has_generations_is_written_once_and_sent_to_every_broker() -> None:
    world, term = started()
    assert sent_marks(world, UpdateMetadataRequest, 0) and not any(sent_marks(world, UpdateMetadataRequest, 0))
    sent_before, version = len(world.sent), world.topics["t"].version
    for _ in range(2):
        (row,) = ask(world, term).topics
        assert row.has_generations and row.topic_id == TOPIC_ID and row.partitions == []
    assert written(world) and world.topics["t"].version == version + 1
    assert sent_marks(world, UpdateMetadataRequest, sent_before) == [True, True, True], "each broker once"
    assert not sent_marks(world, LeaderAndIsrRequest, sent_before), "nobody's role has changed"


def test_missing_topic_is_not_marked() -> None:
    world, term = started()
    assert not ask(world, term, topic_id=b"?" * 16).topics[0].has_generations
    assert not ask(world, term, topic_id=bytes(16), name="nowhere").topics[0].has_generations
    del world.brokers[3]
    term.brokers_changed()
    term.happen(events.DeletionsRead(frozenset({"t"})))  # which waits for the dead broker
    assert not ask(world, term).topics[0].has_generations
    assert not written(world)


def test_stale_broker_epoch_is_refused() -> None:
    world, term = started()
    assert ask(world, term, epoch=5).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert not written(world)


def test_conflicting_write_is_not_reported_as_marked() -> None:
    """Another writer changed the znode: the leader retries until the mark is written."""
    world, term = started()
    topic = world.topics["t"]
    world.topics["t"] = replace(topic, version=topic.version + 1)
    assert not ask(world, term).topics[0].has_generations
    assert not written(world)
    assert ask(world, term).topics[0].has_generations
    assert written(world)


def test_mark_survives_failover_after_any_effect() -> None:
    for steps in range(20):
        world, _ = started()
        term = Term(world).take_over()
        term.crash_after = term.acted + steps
        try:
            answer = ask(world, term)
        except Crash:
            answer = None
        if answer is not None:
            assert answer.topics[0].has_generations
            assert steps > 0
            break
        before = written(world)
        successor = Term(world).take_over()
        assert written(world) == before, "no controller makes it up, and none forgets it"
        assert ask(world, successor).topics[0].has_generations
        assert written(world)
        assert all(image.topics["t"].has_generations for image in world.images.values())
    else:
        raise AssertionError("it never came to an answer")


def test_later_resize_sends_mark_to_leaders() -> None:
    world, term = started(partitions=2)
    ask(world, term)
    sent_before = len(world.sent)
    term.resize("t", 5)
    leaders = sent_marks(world, LeaderAndIsrRequest, sent_before)
    assert leaders and all(leaders)
    assert written(world) and world.topics["t"].body.generation == 1


def test_running_resize_keeps_mark() -> None:
    world, term = started(partitions=2)
    body = world.topics["t"].body
    assert body.generation == 0
    term.resize("t", 5)
    ask(world, term)
    term.resize("t", 2)
    assert written(world) and world.topics["t"].body.generation == 2


def test_mark_survives_znode_round_trip() -> None:
    plain = TopicBody(assignment={0: (1,)})
    assert b"stamped" not in znodes.encode_topic(plain)
    for body in (plain, replace(plain, has_generations=True)):
        assert znodes.decode_topic("", znodes.encode_topic(body)).has_generations is body.has_generations
