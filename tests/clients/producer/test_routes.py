"""The three kinds of routes are distinct, and refusals name their subject."""

from __future__ import annotations

import pytest

from anabranch.clients.producer.queues import TopicQueues
from anabranch.clients.producer.routes import (
    UNKEYED,
    check_accepted,
    chosen_partition,
    explicit_route,
    not_live,
    route_of,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.hashing import murmur2
from anabranch.protocol.lineage import Lineage


def topic_of(count: int, *starved: int) -> TopicQueues:
    topic = TopicQueues("t")
    topic.hash_over(Lineage(1, [(0, count)]), range(count))
    topic.note_condition(leaderless=(), starved=starved, refusing=True)
    return topic


def test_explicit_routes_differ_from_hashes() -> None:
    assert [chosen_partition(explicit_route(index)) for index in (0, 1, 99)] == [0, 1, 99]
    assert all(explicit_route(index) < UNKEYED for index in (0, 1, 99))


def test_explicit_partition_overrides_key() -> None:
    assert route_of(b"k", None) == murmur2(b"k") >= 0
    assert route_of(None, None) == UNKEYED
    assert route_of(b"k", 3) == route_of(None, 3) == explicit_route(3)


@pytest.mark.parametrize("partition", [-1, -2, -7])
def test_negative_partition_is_refused(partition: int) -> None:
    """Its route would be that of any partition, or of some key."""
    with pytest.raises(ValueError, match=f"not {partition}"):
        route_of(b"k", partition)


def test_partition_that_is_no_integer_is_refused() -> None:
    with pytest.raises(TypeError):
        route_of(b"k", 1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("route", [explicit_route(1), murmur2(b"k")])
def test_starved_partition_refuses_and_its_neighbours_do_not(route: int) -> None:
    home = chosen_partition(route) if route < 0 else topic_of(2).address(route)
    check_accepted(topic_of(2, 1 - home), route)
    with pytest.raises(KafkaError, match=f"partition {home}") as refused:
        check_accepted(topic_of(2, home), route)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


def test_keyless_record_is_refused_only_if_every_partition_starves() -> None:
    check_accepted(topic_of(2, 1), UNKEYED)
    with pytest.raises(KafkaError, match="every partition"):
        check_accepted(topic_of(2, 0, 1), UNKEYED)


def test_error_of_missing_partition_names_live_ones() -> None:
    assert "partition 2: it is retiring, removed, or never existed (live: 0 to 1)" in str(not_live(topic_of(2), 2))
    assert "(live: none)" in str(not_live(TopicQueues("t"), 2))
