"""CreatePartitions: Kafka's validations, shrinking, and the queue per topic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from anabranch.controller import events
from anabranch.controller.features import RESHARD, SAFE_DOWNGRADE
from anabranch.controller.model import Features
from anabranch.controller.resize_requests import is_shrink_request, place_replicas
from anabranch.protocol.apis.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from anabranch.protocol.apis.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.controller.world import Term, World, broker, started


def ask(term: Term, *topics: CreatePartitionsTopic, timeout_ms: int = 1000, validate_only: bool = False) -> Any:
    request = CreatePartitionsRequest(topics=list(topics), timeout_ms=timeout_ms, validate_only=validate_only)
    term.happen(events.PartitionsRequested(5, request))
    return term.replies.pop(5, None)


def topic_request(
    count: int, name: str = "t", *, shrink: bool = False, assignments: Any = None
) -> CreatePartitionsTopic:
    rows = None if assignments is None else [CreatePartitionsAssignment(broker_ids=one) for one in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=rows, allow_shrink=shrink)


@pytest.mark.parametrize(
    ("topic", "code", "says"),
    [
        (topic_request(4), ErrorCode.INVALID_PARTITIONS, "already has 4"),
        (topic_request(3), ErrorCode.INVALID_PARTITIONS, "anabranch topics alter t --partitions 3"),
        (topic_request(0, shrink=True), ErrorCode.INVALID_PARTITIONS, "the minimum is one"),
        (topic_request(5, name="nope"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "does not exist"),
        (topic_request(6, assignments=[[1, 2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "by 2 but 1"),
        (topic_request(5, assignments=[[1, 9]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "live brokers"),
        (topic_request(5, assignments=[[1, 1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "distinct"),
        (topic_request(5, assignments=[[1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partition 0 has"),
        (topic_request(5, assignments=[[]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "live brokers"),
    ],
)
def test_refused_resize_has_code_and_message(topic: CreatePartitionsTopic, code: ErrorCode, says: str) -> None:
    world, term = started(partitions=4)
    before = world.topics["t"]
    row = ask(term, topic).results[0]
    assert row.error_code == code and says in row.error_message
    assert world.topics["t"] == before


@pytest.mark.parametrize(("first_replica", "added_on"), [(1, [2, 3]), (2, [3, 1]), (3, [1, 2]), (9, [2, 3])])
def test_added_partitions_continue_from_the_first_replica_of_partition_0(
    first_replica: int, added_on: list[int]
) -> None:
    """As in Kafka; from the first broker if none has this id or a higher one."""
    _, term = started(partitions=1, replication=1)
    body = replace(term.state.topics["t"].body, assignment={0: (first_replica,)})
    assert place_replicas(term.state, body, [1, 2]) == {1: (added_on[0],), 2: (added_on[1],)}


def test_r17_topic_is_resized_only_when_every_broker_fences_old_generations() -> None:
    world, term = started(partitions=4)
    world.add_topic("plain", {0: (1,)}, enable_ordered_delivery="false")
    term.happen(events.TopicsRead(frozenset(world.topics), (world.snapshot("plain"),)))
    term.state.brokers[2] = replace(term.state.brokers[2], features=())
    row = ask(term, topic_request(6)).results[0]
    assert (row.error_code, "Brokers [2] do not support" in row.error_message) == (ErrorCode.UNSUPPORTED_VERSION, True)
    assert ask(term, topic_request(2, "plain")).results[0].error_code == 0, "such a topic is fenced by nobody"
    term.state.brokers[2] = broker(2, term.state.brokers[2].epoch)
    term.state.features = Features()
    row = ask(term, topic_request(6)).results[0]
    assert (row.error_code, "not finalized" in row.error_message) == (ErrorCode.UNSUPPORTED_VERSION, True)
    term.state.features = Features({RESHARD: 1}, 1)
    assert ask(term, topic_request(6)).results[0].error_code == 0
    back = FeatureUpdateKey(feature=RESHARD, max_version_level=0, upgrade_type=SAFE_DOWNGRADE)
    term.happen(events.FeaturesRequested(7, UpdateFeaturesRequest(feature_updates=[back])))
    code, says = term.replies.pop(7)[RESHARD]
    assert code == ErrorCode.INVALID_REQUEST and "Resized topics need" in says and ": t." in says


@pytest.mark.parametrize("initial", [3, 6, 10, 12])
def test_topic_shrinks_to_any_count_of_at_least_one(initial: int) -> None:
    _, term = started(partitions=initial)
    for count in range(initial - 1, 0, -1):
        assert ask(term, topic_request(count, shrink=True)).results[0].error_code == 0, count
    for nonsense in (0, -1):
        row = ask(term, topic_request(nonsense, shrink=True)).results[0]
        assert (row.error_code, "the minimum is one" in row.error_message) == (ErrorCode.INVALID_PARTITIONS, True)


def test_duplicates_are_refused_and_others_resized() -> None:
    world, term = started(partitions=4)
    world.add_topic("u", {0: (1,)})
    term.happen(events.TopicsRead(frozenset({"t", "u"}), (world.snapshot("u"),)))
    answer = ask(term, topic_request(5), topic_request(6), topic_request(2, name="u"))
    assert {row.name: row.error_code for row in answer.results} == {"t": ErrorCode.INVALID_REQUEST, "u": 0}


def test_unordered_topics_grow_as_in_kafka() -> None:
    world, term = started(partitions=4, enable_ordered_delivery="false")
    assert ask(term, topic_request(6)).results[0].error_code == 0
    body = world.topics["t"].body
    assert (body.undeleted_partition_count, body.generation, body.plan) == (6, 0, None)
    assert {(state.generation, state.leader_epoch) for state in world.states_of("t").values()} == {(0, 0)}
    row = ask(term, topic_request(3, shrink=True)).results[0]
    assert row.error_code == ErrorCode.INVALID_PARTITIONS and "enable.ordered.delivery=false" in row.error_message


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state", "__share_group_state"])
def test_topics_of_coordinators_keep_their_partition_count(name: str) -> None:
    """Else groups would lose their offsets: with another count, most have another coordinator."""
    world = World()
    world.add_brokers(1, 2)
    world.add_topic(name, {0: (1,), 1: (2,)})
    term = Term(world).take_over()
    for count in (1, 3):
        row = ask(term, topic_request(count, name, shrink=True)).results[0]
        assert row.error_code == ErrorCode.INVALID_PARTITIONS and "cannot be changed" in row.error_message
    assert len(world.topics[name].body.assignment) == 2


def test_compacted_topics_do_not_shrink() -> None:
    """R15: the last record of each key never expires, so a retiring partition would never drain."""
    _, term = started(partitions=4, cleanup_policy="compact")
    row = ask(term, topic_request(2, shrink=True)).results[0]
    assert row.error_code == ErrorCode.INVALID_PARTITIONS and "compact" in row.error_message
    assert ask(term, topic_request(5)).results[0].error_code == 0


@pytest.mark.parametrize(
    ("default", "own", "may_shrink"),
    [
        ("compact", None, False),
        ("compact", "delete", True),
        ("compact,delete", None, True),
        ("delete", "compact,compact", False),
        ("delete", "compact, delete", True),
        ("delete", "", False),
    ],
)
def test_topics_shrink_if_their_own_or_the_default_policy_deletes(
    default: str, own: str | None, may_shrink: bool
) -> None:
    world, _ = started(partitions=4) if own is None else started(partitions=4, cleanup_policy=own)
    term = Term(world, log_cleanup_policy=default).take_over()
    row = ask(term, topic_request(2, shrink=True)).results[0]
    assert row.error_code == (ErrorCode.NONE if may_shrink else ErrorCode.INVALID_PARTITIONS)


def test_validate_only_changes_nothing() -> None:
    world, term = started(partitions=4)
    before = world.topics["t"]
    assert ask(term, topic_request(6), validate_only=True).results[0].error_code == 0
    assert world.topics["t"] == before


def held_up(world: World) -> None:
    world.silent.add(world.state("t", 0).leader)


def test_resizes_of_one_topic_run_in_sequence() -> None:
    world, term = started(partitions=4)
    held_up(world)
    assert term.resize("t", 6) is None
    assert term.resize("t", 8) is None
    assert term.resize("t", 5) is None
    leader = world.state("t", 0).leader
    world.silent.clear()
    world.add_brokers(leader)  # it restarts, and answers in its new life
    term.brokers_changed()
    assert [term.replies[token].results[0].error_code for token in (1, 2, 3)] == [0, 0, 0]
    assert [count for _, count in world.topics["t"].body.history] == [4, 6, 8, 5]


@pytest.mark.parametrize("barred", [True, False])
def test_queued_request_that_became_a_shrink_is_refused(barred: bool) -> None:
    world, term = started(partitions=4)
    held_up(world)
    assert not is_shrink_request(term.state, topic_request(5, shrink=True))
    assert is_shrink_request(term.state, topic_request(3, shrink=True)) and not is_shrink_request(
        term.state, topic_request(3)
    )
    assert term.resize("t", 6) is None
    assert is_shrink_request(term.state, topic_request(5, shrink=True)), "more than now, and fewer than then"
    assert not is_shrink_request(term.state, topic_request(5, "no such topic", shrink=True))
    request = CreatePartitionsRequest(topics=[topic_request(5, shrink=True)], timeout_ms=1000, validate_only=False)
    refusals = {"t": KafkaError(ErrorCode.POLICY_VIOLATION, "somebody reads it")} if barred else {}
    term.happen(events.PartitionsRequested(5, request, refusals))
    leader = world.state("t", 0).leader
    world.silent.clear()
    world.add_brokers(leader)
    term.brokers_changed()
    (row,) = term.replies[5].results
    assert (row.error_code, row.error_message) == ((44, "somebody reads it") if barred else (0, None))
    assert world.topics["t"].body.undeleted_partition_count == (6 if barred else 5)


def test_request_barred_from_shrinking_may_grow() -> None:
    _, term = started(partitions=4)
    request = CreatePartitionsRequest(topics=[topic_request(5, shrink=True)], timeout_ms=1000, validate_only=False)
    term.happen(events.PartitionsRequested(5, request, {"t": KafkaError(ErrorCode.POLICY_VIOLATION)}))
    assert term.replies[5].results[0].error_code == 0


@pytest.mark.parametrize("ordered", ["true", "false"])
def test_resize_does_not_wait_for_leaders_of_other_partitions(ordered: str) -> None:
    """Partition 2 had never a leader: its broker has not started yet."""
    world = World()
    world.add_brokers(1, 2)
    world.add_topic("t", {0: (1,), 1: (2,), 2: (9,), 3: (1,)}, enable_ordered_delivery=ordered)
    term = Term(world).take_over()
    assert term.resize("t", 5).error_code == 0
    assert term.resize("t", 6).error_code == 0


def test_request_that_timed_out_holds_up_no_later_one() -> None:
    """The new partition is assigned to a broker that shuts down: it gets a leader when that broker returns."""
    _, term = started(brokers=2, partitions=2, replication=1, enable_ordered_delivery="false")
    term.state.shutting_down.add(2)
    assert ask(term, topic_request(3, assignments=[[2]])) is None
    assert term.resize("t", 4) is None, "the first one may still succeed"
    term.happen(events.ReplyDue(5))
    assert term.replies.pop(5).results[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert term.replies.pop(1).results[0].error_code == 0


def test_timed_out_resize_continues() -> None:
    world, term = started(partitions=4)
    held_up(world)
    assert ask(term, topic_request(6)) is None
    term.happen(events.ReplyDue(5))
    assert term.replies.pop(5).results[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert world.topics["t"].body.plan is not None
    world.silent.clear()
    Term(world).take_over()
    assert world.topics["t"].body.undeleted_partition_count == 6


def test_zero_timeout_returns_at_once_and_resize_continues() -> None:
    world, term = started(partitions=4)
    held_up(world)
    assert ask(term, topic_request(6), timeout_ms=0).results[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert world.topics["t"].body.plan is not None


def test_topic_deletion_fails_waiting_resizes() -> None:
    world, term = started(partitions=4)
    held_up(world)
    assert term.resize("t", 6) is None
    world.deletions.add("t")
    term.happen(events.DeletionsRead(frozenset({"t"})))
    assert term.replies[1].results[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_plan_overwritten_by_another_writer_is_made_again() -> None:
    from dataclasses import replace

    world, term = started(partitions=4)
    world.topics["t"] = replace(world.topics["t"], version=7)  # written behind the controller's back
    assert term.resize("t", 6).error_code == 0
    assert world.topics["t"].body.undeleted_partition_count == 6
