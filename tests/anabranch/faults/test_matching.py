"""A rule matches exactly the requests that it describes."""

from __future__ import annotations

import dataclasses
import struct

import pytest

from anabranch.broker.authorization.peer import Peer
from anabranch.faults.matching import Index, Matcher, NodeContext, RequestView, version_span
from anabranch.faults.rule import Rule
from anabranch.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from anabranch.protocol.codec import DecodedRequest
from anabranch.protocol.registry import BY_NAME
from tests.anabranch.faults.samples import PEER, SURROUNDINGS, by_name

ID = b"o" * 16


def view(request: DecodedRequest, peer: Peer = PEER, number: int = 0) -> RequestView:
    return RequestView(request, peer, number, SURROUNDINGS)


def fetch(**said: object) -> DecodedRequest:
    values: dict[str, object] = {"max_wait_ms": 0, "min_bytes": 0, "topics": [], **said}
    return DecodedRequest(BY_NAME["Fetch"], 15, 1, "app", FetchRequest(**values))  # type: ignore[arg-type]


def fits(rule: Rule, what: RequestView) -> bool:
    request, matcher = what.request, Matcher(rule)
    return matcher.is_about(request.api.key, request.version, request.client_id, what.peer) and matcher.fits(what)


def test_versions_are_one_a_range_or_a_minimum() -> None:
    assert [version_span(one) for one in ("7", "3-9", "12-", "")] == [(7, 7), (3, 9), (12, 32767), (0, 32767)]
    with pytest.raises(ValueError, match="invalid literal"):
        version_span("x")
    request = view(by_name("Heartbeat", 3))
    assert [fits(Rule(versions=one), request) for one in ("3", "0-2", "3-", "4-")] == [True, False, True, False]


def test_client_id_principal_and_address_are_matched() -> None:
    request = by_name("Heartbeat", 4)
    peer = Peer("10.0.0.1", 1, principal="User:alice", listener="INSIDE")
    assert fits(Rule(client_id="a?p"), view(request)) and not fits(Rule(client_id="ap"), view(request))
    for rule, met in (
        (Rule(address="10.0.0.1"), True), (Rule(address="10.0.0.2"), False), (Rule(listener="INSIDE"), True),
        (Rule(listener="OUTSIDE"), False), (Rule(principal="User:alice", listener="INSIDE"), True),
        (Rule(principal="User:bob", listener="INSIDE"), False),
    ):  # fmt: skip
        assert fits(rule, view(request, peer)) is met
    anonymous = dataclasses.replace(request, client_id=None)
    assert not fits(Rule(client_id="app"), view(anonymous)) and fits(Rule(client_id="*"), view(anonymous))


def test_first_requests_of_a_connection_are_matched() -> None:
    request = by_name("Heartbeat", 4)
    assert [fits(Rule(first=2), view(request, number=number)) for number in (0, 1, 2, 3)] == [False, True, True, False]


@pytest.mark.parametrize(
    ("request_", "between"),
    [
        (by_name("UpdateMetadata", 8), True),
        (by_name("WriteTxnMarkers", 1), True),
        (fetch(replica_id=2), True),
        (fetch(replica_state=ReplicaState(replica_id=2)), True),
        (fetch(), False),
        (dataclasses.replace(by_name("ApiVersions", 3), client_id="broker-1-fetcher"), True),
        (dataclasses.replace(by_name("ApiVersions", 3), client_id="controller-3"), True),
        (dataclasses.replace(by_name("WriteShareGroupState", 1), client_id="share-partitions-2"), True),
        (dataclasses.replace(by_name("OffsetForLeaderEpoch", 4), client_id="group-coordinator-2"), True),
        (dataclasses.replace(by_name("ApiVersions", 3), client_id="broker-x"), False),
    ],
)
def test_broker_requests_are_matched_only_on_request(request_: DecodedRequest, between: bool) -> None:
    assert fits(Rule(), view(request_)) is not between
    assert fits(Rule(between_brokers=True), view(request_)) is between


def test_topics_and_partitions_are_matched() -> None:
    asked = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1) for index in (0, 1)]
    request = view(fetch(topics=[FetchTopic(topic_id=ID, partitions=asked)]))
    for rule, met in (
        (Rule(topic=("orders",)), True), (Rule(topic=("payments",)), False), (Rule(partition=(1,)), True),
        (Rule(topic=("orders",), partition=(2,)), False), (Rule(topic=("payments",), partition=(1,)), False),
    ):  # fmt: skip
        assert fits(rule, request) is met
    (row,) = Matcher(Rule(partition=(1,))).rows(request)
    assert row["topic"] == "orders" and row["partition"] == 1


def test_fetch_matches_all_partitions_of_its_session() -> None:
    def session(number: int) -> list[tuple[bytes | str, int]]:
        return {7: [(ID, 0), (ID, 1), ("payments", 0)]}.get(number, [])

    at = NodeContext(1, SURROUNDINGS.topic_name, session)
    asked = [FetchTopic(topic_id=ID, partitions=[FetchPartition(partition=1, fetch_offset=0, partition_max_bytes=1)])]
    rows = RequestView(fetch(session_id=7, session_epoch=3, topics=asked), PEER, 0, at).rows
    assert [(row["topic"], row["partition"]) for row in rows] == [("orders", 1), ("orders", 0), ("payments", 0)]
    assert RequestView(fetch(session_id=8, session_epoch=3), PEER, 0, at).rows == []
    assert len(RequestView(fetch(session_id=7, session_epoch=0, topics=asked), PEER, 0, at).rows) == 1


def test_fetch_does_not_match_a_partition_that_it_removes_from_its_session() -> None:
    at = NodeContext(1, SURROUNDINGS.topic_name, lambda session: [(ID, 0), (ID, 1), ("payments", 0)])
    removed = [ForgottenTopic(topic_id=ID, partitions=[0]), ForgottenTopic(topic="payments", partitions=[0])]
    seen = RequestView(fetch(session_id=7, session_epoch=3, forgotten_topics_data=removed), PEER, 0, at)
    assert [(row["topic"], row["partition"]) for row in seen.rows] == [("orders", 1)]
    assert seen.values("topic") == {"orders"} and seen.values("partition") == {1}
    assert not fits(Rule(topic=("orders",), partition=(0,)), seen) and fits(Rule(topic=("orders",)), seen)


def test_row_without_partition_matches_possibly_but_not_surely() -> None:
    matcher = Matcher(Rule(topic=("a",), partition=(1,)))
    assert matcher.matches({"topic": "a"}) and not matcher.surely_matches({"topic": "a"})
    assert not matcher.matches({"topic": "b"}) and matcher.surely_matches({"topic": "a", "partition": 1})
    assert not Matcher(Rule()).names_rows


def test_producer_is_matched_by_its_batch() -> None:
    request = by_name("Produce", 9)
    batch = bytearray(61)
    batch[16] = 2
    batch[43:51] = struct.pack(">q", 4711)
    request.body.topic_data[0].partition_data[0].records = bytes(batch)
    assert fits(Rule(producer_id=(4711,)), view(request))
    assert [row["producer_id"] for row in Matcher(Rule(producer_id=(4711,))).rows(view(request))] == [4711]
    assert not fits(Rule(producer_id=(1,)), view(request))


def test_named_values_are_read_from_request_or_rows() -> None:
    asked = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1) for index in (0, 1)]
    full = view(fetch(topics=[FetchTopic(topic_id=ID, partitions=asked)]))
    assert full.values("topic") == {"orders"} and full.values("partition") == {0, 1}
    at = NodeContext(1, SURROUNDINGS.topic_name, lambda session: [(ID, 5), ("payments", 6)])
    session = RequestView(fetch(session_id=7, session_epoch=3), PEER, 0, at)
    assert session.values("topic") == {"orders", "payments"} and session.values("partition") == {5, 6}
    for name in ("FindCoordinator", "DescribeConfigs"):  # another field says what is named
        assert view(by_name(name, 1)).values("group") is None and view(by_name(name, 1)).values("topic") is None
    everything = by_name("Metadata", 9)
    everything.body.topics = None
    assert view(everything).values("topic") is None
    assert view(by_name("StopReplica", 1)).values("partition") == {6, 7, 9, 10}


def test_rules_are_indexed_by_named_values() -> None:
    rules = [Rule(topic=("a",)), Rule(), Rule(topic=("b", "orders")), Rule(partition=(1,)), Rule(topic=("orders",))]
    index = Index([Matcher(rule) for rule in rules])
    asked = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)]
    assert list(index.candidates(view(fetch(topics=[FetchTopic(topic_id=ID, partitions=asked)])))) == [1, 2, 4]
    assert list(Index([Matcher(rules[0]), Matcher(rules[3])]).candidates(view(fetch(topics=[])))) == [0, 1]
    none = [Matcher(Rule(topic=("orders",), partition=(1,)))]
    assert list(Index(none).candidates(view(fetch(topics=[FetchTopic(topic_id=ID, partitions=asked)])))) == []
    assert list(index.candidates(view(by_name("FindCoordinator", 1)))) == [0, 1, 2, 3, 4]
    assert list(Index([Matcher(Rule())]).candidates(view(by_name("Heartbeat", 1)))) == [0]
