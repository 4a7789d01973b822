"""Rules change only matching requests, in order, before or after the work."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import Any

import pytest

from anabranch.broker.authorization.peer import Peer
from anabranch.broker.dispatch.dispatcher import Dispatcher
from anabranch.broker.dispatch.request_context import CloseConnection
from anabranch.faults.active_rule import ActiveRule, Decision
from anabranch.faults.corruption import DamagedResponse, SilentResponse
from anabranch.faults.matching import RequestView
from anabranch.faults.rewriting import empty_answer
from anabranch.protocol.apis.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from anabranch.protocol.apis.heartbeat import HeartbeatResponse
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from anabranch.protocol.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from anabranch.protocol.codec import DecodedRequest
from anabranch.protocol.connection import encode_response
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.registry import BY_NAME
from anabranch.proxy.opaque_message import OpaqueMessage, read_request
from anabranch.proxy.request_header import RequestHeader
from tests.anabranch.faults.samples import PEER, Inner, armed, by_name, faulty

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


class Producing(Inner):
    """Stores what it is sent, at offset 7."""

    async def answer(self, request: DecodedRequest, peer: Peer) -> Any:
        self.asked.append(request)
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    partition_responses=[
                        PartitionProduceResponse(index=one.index, error_code=0, base_offset=7)
                        for one in topic.partition_data
                    ],
                )
                for topic in request.body.topic_data
            ]
        )

    @property
    def stored(self) -> list[tuple[str, int]]:
        return [places for request in self.asked for places in places_of(request.body)]


def places_of(body: ProduceRequest) -> list[tuple[str, int]]:
    return [(topic.name, one.index) for topic in body.topic_data for one in topic.partition_data]


def produce(*places: tuple[str, int]) -> DecodedRequest:
    data = [
        TopicProduceData(name=name, partition_data=[PartitionProduceData(index=index, records=b"")])
        for name, index in places
    ]
    return DecodedRequest(BY_NAME["Produce"], 9, 1, "app", ProduceRequest(acks=1, timeout_ms=1, topic_data=data))


def codes(response: ProduceResponse) -> dict[tuple[str, int], int]:
    return {
        (topic.name, one.index): one.error_code for topic in response.responses for one in topic.partition_responses
    }


async def test_one_partition_is_refused_and_others_are_served() -> None:
    inner, rule = Producing(), armed(api=("Produce",), topic=("a",), partition=(1,), error=NOT_LEADER.name)
    response = await faulty(inner, rule).answer(produce(("a", 0), ("a", 1), ("b", 1)), PEER)
    assert codes(response) == {("a", 0): 0, ("a", 1): NOT_LEADER, ("b", 1): 0}
    assert inner.stored == [("a", 0), ("b", 1)]
    assert rule.hits == rule.met == 1


async def test_after_work_refuses_stored_records() -> None:
    inner = Producing()
    rule = armed(api=("Produce",), partition=(1,), error=NOT_LEADER.name, after_work=True)
    response = await faulty(inner, rule).answer(produce(("a", 0), ("a", 1)), PEER)
    assert codes(response) == {("a", 0): 0, ("a", 1): NOT_LEADER}
    assert inner.stored == [("a", 0), ("a", 1)]


async def test_first_of_two_rules_overrides_the_second() -> None:
    inner = Producing()
    first = armed(api=("Produce",), partition=(0,), error="NOT_ENOUGH_REPLICAS", times=1)
    second = armed(api=("Produce",), error=NOT_LEADER.name)
    dispatcher = faulty(inner, first, second)
    response = await dispatcher.answer(produce(("a", 0), ("a", 1)), PEER)
    assert codes(response) == {("a", 0): ErrorCode.NOT_ENOUGH_REPLICAS, ("a", 1): NOT_LEADER}
    response = await dispatcher.answer(produce(("a", 0)), PEER)
    assert codes(response) == {("a", 0): NOT_LEADER}, "the first is spent"
    assert (first.hits, second.hits) == (1, 2) and inner.asked == []


async def test_inner_rule_edits_before_outer_rule_damages_response() -> None:
    inner = Inner()
    inner.response = metadata("a")
    first = armed(name="first", api=("Metadata",), throttle_ms=70, truncate=1)
    second = armed(name="second", api=("Metadata",), wrong_correlation_id=True)
    with pytest.raises(DamagedResponse) as spoilt:
        await faulty(inner, first, second).answer(by_name("Metadata", 9), PEER)
    assert spoilt.value.response.throttle_time_ms == 70
    assert [one.name for one in spoilt.value.rules] == ["second", "first"]


async def test_rule_for_other_requests_changes_nothing() -> None:
    inner = Producing()
    rules = [
        armed(api=("Fetch",), error=NOT_LEADER.name),
        armed(api=("Produce",), topic=("c",), error=NOT_LEADER.name),
        armed(versions="99-", hold=True),
        armed(api=("Produce",), times=0, after=5, error=NOT_LEADER.name),
    ]
    assert codes(await faulty(inner, *rules).answer(produce(("a", 0)), PEER)) == {("a", 0): 0}
    assert [rule.met for rule in rules] == [0, 0, 0, 1] and not any(rule.hits for rule in rules)


async def test_top_level_error_is_returned_without_the_work() -> None:
    inner = Inner()
    answer = faulty(inner, armed(api=("Heartbeat",), group=("g",), error="UNKNOWN_MEMBER_ID")).answer
    request = by_name("Heartbeat", 4)
    request.body.group_id = "g"
    assert (await answer(request, PEER)).error_code == ErrorCode.UNKNOWN_MEMBER_ID and not inner.asked
    request.body.group_id = "h"
    assert (await answer(request, PEER)).error_code == 0 and inner.asked


def fetch(*places: tuple[str, int]) -> DecodedRequest:
    topics = [
        FetchTopic(topic=name, partitions=[FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1)])
        for name, index in places
    ]
    return DecodedRequest(BY_NAME["Fetch"], 11, 1, "app", FetchRequest(max_wait_ms=500, min_bytes=1, topics=topics))


def fetched(*places: tuple[str, int]) -> FetchResponse:
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=name,
                partitions=[PartitionData(partition_index=index, error_code=0, high_watermark=9, records=b"x")],
            )
            for name, index in places
        ]
    )


async def test_fetch_is_executed_once_as_a_whole() -> None:
    inner, rule = Inner(), armed(api=("Fetch",), topic=("a",), error=NOT_LEADER.name)
    inner.response = fetched(("b", 0))  # of a: no news
    response = await faulty(inner, rule).answer(fetch(("a", 0), ("b", 0)), PEER)
    shown = [(one.topic, row.error_code, row.records) for one in response.responses for row in one.partitions]
    assert shown == [("b", 0, b"x"), ("a", NOT_LEADER, b"")]
    (asked,) = inner.asked
    assert len(asked.body.topics) == 2 and asked.body.max_wait_ms == 0


async def test_fetch_refused_as_a_whole_keeps_its_own_error() -> None:
    inner, rule = Inner(), armed(api=("Fetch",), topic=("a",), error=NOT_LEADER.name)
    inner.response = FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
    assert (await faulty(inner, rule).answer(fetch(("a", 0)), PEER)) is inner.response


def metadata(*names: str) -> MetadataResponse:
    topics = [MetadataResponseTopic(error_code=0, name=name, partitions=[]) for name in names]
    return MetadataResponse(brokers=[], topics=topics)


async def test_request_for_all_topics_is_hit_if_response_has_the_topic() -> None:
    inner, rule = Inner(), armed(api=("Metadata",), topic=("a",), error="UNKNOWN_TOPIC_OR_PARTITION", times=1)
    answer = faulty(inner, rule).answer
    request = DecodedRequest(BY_NAME["Metadata"], 9, 1, "app", MetadataRequest(topics=None))
    inner.response = metadata("b")
    assert (await answer(request, PEER)) is inner.response and rule.hits == 0
    inner.response = metadata("a", "b")
    assert [(one.name, one.error_code) for one in (await answer(request, PEER)).topics] == [("a", 3), ("b", 0)]
    assert (await answer(request, PEER)) is inner.response
    assert rule.hits == 1 and inner.response == metadata("a", "b")


async def test_rule_about_rows_of_a_response_applies_also_if_a_rule_inside_damages_it() -> None:
    inner = Inner()
    inner.response = metadata("b", "a")
    request = DecodedRequest(BY_NAME["Metadata"], 9, 1, "app", MetadataRequest(topics=None))
    first = armed(api=("Metadata",), topic=("a",), edit={"topics[*].is_internal": True})
    second = armed(name="second", api=("Metadata",), truncate=1)
    with pytest.raises(DamagedResponse) as spoilt:
        await faulty(inner, first, second).answer(request, PEER)
    assert [one.is_internal for one in spoilt.value.response.topics] == [False, True] and first.hits == 1
    assert [one.name for one in spoilt.value.rules] == ["second"]
    inner.response = metadata("b")
    with pytest.raises(DamagedResponse):
        await faulty(inner, first, second).answer(request, PEER)
    assert first.hits == 1


def stored_in(*partitions: tuple[int, bytes]) -> FetchResponse:
    rows = [
        PartitionData(partition_index=index, error_code=0, high_watermark=1, records=stored)
        for index, stored in partitions
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic="a", partitions=rows)] if rows else [])


def fetch_of_two() -> DecodedRequest:
    asked = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=99) for index in (0, 1)]
    body = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic="a", partitions=asked)])
    return DecodedRequest(BY_NAME["Fetch"], 11, 1, "app", body)


OF_ONE_PARTITION = {"topic": ("a",), "partition": (1,)}


@pytest.mark.parametrize("where", [{}, OF_ONE_PARTITION])
async def test_records_are_corrupted_in_the_first_response_that_has_some(where: dict[str, Any]) -> None:
    inner, rule = Inner(), armed(api=("Fetch",), corrupt="records", times=1, **where)
    without = [stored_in((0, b""), (1, b"")), FetchResponse(error_code=70, responses=[])]
    for inner.response in (*without, *([stored_in((0, bytes(99)))] if where else [])):
        assert await faulty(inner, rule).answer(fetch_of_two(), PEER) is inner.response
    assert (rule.met, rule.hits) == (0, 0)
    inner.response = stored_in((1, bytes(99)))
    made = await faulty(inner, rule).answer(fetch_of_two(), PEER)
    assert made.responses[0].partitions[0].records != bytes(99) and rule.hits == 1


@pytest.mark.parametrize("where", [{}, OF_ONE_PARTITION])
async def test_fetch_is_edited_in_the_first_response_that_has_the_row(where: dict[str, Any]) -> None:
    edit = {"responses[*].partitions[*].error_code": 9999}
    inner, rule = Inner(), armed(api=("Fetch",), edit=edit, times=1, **where)
    for inner.response in (stored_in(), *([stored_in((0, b""))] if where else [])):
        assert await faulty(inner, rule).answer(fetch_of_two(), PEER) is inner.response
    assert (rule.met, rule.hits) == (0, 0), "an unchanged fetch session has no rows"
    inner.response = stored_in((1, b""))
    made = await faulty(inner, rule).answer(fetch_of_two(), PEER)
    assert made.responses[0].partitions[0].error_code == 9999 and rule.hits == 1


async def test_delay_that_depends_on_response_follows_the_work() -> None:
    inner, rule = Inner(), armed(api=("Metadata",), topic=("a",), hold=True)
    inner.response = metadata("a")
    request = DecodedRequest(BY_NAME["Metadata"], 9, 1, "app", MetadataRequest(topics=None))
    asking = asyncio.create_task(faulty(inner, rule).answer(request, PEER))
    await rule.wait_hit()
    assert inner.asked and not asking.done()
    rule.release()
    assert await asking is inner.response


@pytest.mark.parametrize("after_work", [False, True])
async def test_hold_is_before_or_after_the_work(after_work: bool) -> None:
    inner, rule = Inner(), armed(api=("Heartbeat",), hold=True, after_work=after_work)
    asking = asyncio.create_task(faulty(inner, rule).answer(by_name("Heartbeat", 4), PEER))
    await rule.wait_hit()
    assert rule.held == 1 and len(inner.asked) == after_work
    rule.release()
    assert (await asking).error_code == 0 and len(inner.asked) == 1


async def raised(rule: ActiveRule, inner: Inner) -> Exception:
    with pytest.raises((CloseConnection, SilentResponse, DamagedResponse)) as caught:
        await faulty(inner, rule).answer(by_name("Heartbeat", 4), PEER)
    return caught.value


@pytest.mark.parametrize(
    ("said", "what", "done"),
    [
        ({"disconnect": "before"}, CloseConnection, 0),
        ({"disconnect": "after"}, CloseConnection, 1),
        ({"disconnect": "middle"}, DamagedResponse, 1),
        ({"silence": True}, SilentResponse, 0),
        ({"silence": True, "after_work": True}, SilentResponse, 1),
        ({"half_open": True}, SilentResponse, 0),
        ({"truncate": 2}, DamagedResponse, 1),
        ({"corrupt": "frame"}, DamagedResponse, 1),
        ({"wrong_correlation_id": True}, DamagedResponse, 1),
        ({"drip": 5}, DamagedResponse, 1),
    ],
)
async def test_work_before_damaged_response_depends_on_rule(
    said: dict[str, Any], what: type[Exception], done: int
) -> None:
    inner = Inner()
    assert type(await raised(armed(**said), inner)) is what and len(inner.asked) == done


async def test_response_is_edited_with_throttle_time() -> None:
    inner = Inner()
    inner.response = metadata("a")
    rule = armed(api=("Metadata",), throttle_ms=70, edit={"topics[*].name": "z"})
    made = await faulty(inner, rule).answer(by_name("Metadata", 9), PEER)
    assert made.throttle_time_ms == 70 and made.topics[0].name == "z" and inner.response == metadata("a")


async def test_rule_that_edits_hits_the_versions_that_have_the_field_and_can_hold_its_value() -> None:
    for edit, able in (({"topics[*].name": None}, 12), ({"topics[*].partitions[*].leader_epoch": 9}, 7)):
        for version in (able - 1, able):
            inner, rule = Inner(), armed(api=("Metadata",), edit=edit)
            inner.response = metadata("a")
            request = by_name("Metadata", version)
            encode_response(request, await faulty(inner, rule).answer(request, PEER))
            assert rule.hits == (version == able)


async def test_rule_hits_only_versions_that_have_its_error_or_a_throttle_time() -> None:
    cases: list[tuple[str, dict[str, Any], int]] = [
        ("Fetch", {"error": "FETCH_SESSION_ID_NOT_FOUND"}, 7),
        ("Metadata", {"throttle_ms": 70, "delay_ms": (0,)}, 3),
        ("Fetch", {"throttle_ms": 70, "disconnect": "middle"}, 1),
    ]
    for name, what, able in cases:
        for version in (able - 1, able):
            inner, rule = Inner(), armed(api=(name,), **what)
            request = by_name(name, version)
            inner.response = empty_answer(request.api)
            with contextlib.suppress(DamagedResponse, CloseConnection):
                await faulty(inner, rule).answer(request, PEER)
            assert rule.hits == (version == able)


async def test_unreadable_response_is_not_edited() -> None:
    """A proxy passes on versions that it does not know, as bytes."""
    inner, rule = Inner(), armed(api=("Metadata",), edit={"controller_id": 7})
    inner.response = OpaqueMessage(b"response")
    request = read_request(RequestHeader(3, 99, 1, "app", True), b"request")
    assert await faulty(inner, rule).answer(request, PEER) is inner.response and not rule.hits


async def test_first_requests_of_each_connection_are_counted() -> None:
    inner, rule = Inner(), armed(api=("Heartbeat",), first=2, error="UNKNOWN_MEMBER_ID")
    old = Peer("127.0.0.1", 1)
    dispatcher = faulty(inner)
    dispatcher.set_rules([rule], [old])

    async def code(peer: Peer) -> int:
        answered: HeartbeatResponse = await dispatcher.answer(by_name("Heartbeat", 4), peer)
        return answered.error_code

    assert await code(old) == 0, "it has asked before"
    dispatcher = faulty(inner, rule)
    await dispatcher.answer(by_name("ListGroups", 4), PEER)
    assert [await code(PEER), await code(PEER), await code(Peer("127.0.0.1", 2))] == [25, 0, 25]
    assert await code(Peer(PEER.host, PEER.port)) == 25, "another connection from a port that was used before"
    later = armed(api=("Heartbeat",), first=9, error="REBALANCE_IN_PROGRESS")
    dispatcher.set_rules([rule, later], [PEER])
    assert await code(PEER) == 0, "it was open before the second rule"
    logged_in = dataclasses.replace(new := Peer("127.0.0.1", 3), principal="User:alice")
    assert [await code(new), await code(logged_in), await code(logged_in)] == [25, 25, 27]


async def test_requests_answered_by_connection_pass() -> None:
    inner = Inner()
    request = DecodedRequest(BY_NAME["ApiVersions"], 0, 1, "app", None)
    await faulty(inner, armed(hold=True)).answer(request, PEER)
    assert inner.asked == [request]


async def test_dispatcher_has_attributes_of_inner_dispatcher() -> None:
    inner = Inner()
    made = faulty(inner)
    assert isinstance(made, Dispatcher)
    for name in ("audiences", "requests", "throttling", "long_polls"):
        assert getattr(made, name) is getattr(inner, name)


async def test_request_waits_for_a_decision_that_is_made_elsewhere() -> None:
    answers: list[asyncio.Future[Decision]] = [asyncio.get_running_loop().create_future() for _ in range(2)]

    async def decide(rule: ActiveRule, view: RequestView) -> Decision:
        return await answers[rule.met - 1]

    inner = Producing()
    rule = armed(decide=decide, api=("Produce",), topic=("a",), error=NOT_LEADER.name)
    dispatcher = faulty(inner, rule)
    asked = [asyncio.ensure_future(dispatcher.answer(produce(("a", index)), PEER)) for index in range(2)]
    await asyncio.sleep(0)
    assert inner.asked == [] and rule.met == 2
    answers[0].set_result(Decision(hit=True))
    answers[1].set_result(Decision(hit=False, spent=True))
    first, second = await asyncio.gather(*asked)
    assert (codes(first), codes(second)) == ({("a", 0): NOT_LEADER}, {("a", 1): 0})
    assert codes(await dispatcher.answer(produce(("a", 2)), PEER)) == {("a", 2): 0}, "the rule is spent"
    assert (rule.met, rule.hits) == (2, 1)


async def test_rule_whose_rows_are_in_the_response_is_decided_elsewhere_after_the_work() -> None:
    inner = Inner()
    inner.response = metadata("a")
    decided = [Decision(hit=False), Decision(hit=True)]

    async def decide(rule: ActiveRule, view: RequestView) -> Decision:
        return decided.pop(0)

    rule = armed(decide=decide, api=("Metadata",), topic=("a",), throttle_ms=70)
    request = DecodedRequest(BY_NAME["Metadata"], 9, 1, "app", MetadataRequest(topics=None))
    dispatcher = faulty(inner, rule)
    times = [(await dispatcher.answer(request, PEER)).throttle_time_ms for _ in range(2)]
    assert times == [0, 70] and rule.hits == 1
