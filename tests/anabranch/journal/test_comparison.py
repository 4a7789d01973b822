"""Responses are equal if they differ only in what may differ between clusters."""

from __future__ import annotations

from anabranch.journal.comparison import Namer, plain, unequal
from anabranch.protocol.apis.init_producer_id import InitProducerIdResponse
from anabranch.protocol.apis.metadata import MetadataResponse, MetadataResponseBroker


def compared(one: object, other: object, version: int) -> list[object]:
    return list(unequal(plain(one, version, Namer("")), plain(other, version, Namer(""))))


def test_only_addresses_times_and_generated_ids_may_differ() -> None:
    def told(host: str, controller: int, code: int = 0) -> MetadataResponse:
        broker = MetadataResponseBroker(node_id=1, host=host, port=len(host))
        return MetadataResponse(throttle_time_ms=len(host), brokers=[broker], controller_id=controller, topics=[])

    assert not compared(told("a", 1), told("bb", 2), 9)
    both = [
        InitProducerIdResponse(throttle_time_ms=one, error_code=code, producer_id=one, producer_epoch=0)
        for one, code in ((1, 0), (2, 0), (3, 7))
    ]
    assert not compared(both[0], both[1], 3)
    assert compared(both[0], both[2], 3) == [("error_code", 0, 7)]


def test_equal_ids_must_be_at_equal_positions() -> None:
    names, others = Namer(""), Namer("")
    first = [names.name("topic_id", one) for one in (b"a", b"b", b"a")]
    assert (
        first
        == [others.name("topic_id", one) for one in (b"x", b"y", b"x")]
        == ["topic_id 1", "topic_id 2", "topic_id 1"]
    )
    assert Namer("run-1").name("member_id", "") == ""
