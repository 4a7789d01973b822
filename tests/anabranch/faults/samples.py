"""Requests of every API that name two of everything, and a dispatcher with successful responses."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, cast

from anabranch.broker.authorization.peer import Peer
from anabranch.broker.dispatch.dispatcher import HANDLERS, Dispatcher, peer_versions
from anabranch.faults.active_rule import ActiveRule, Decide
from anabranch.faults.dispatcher import FaultInjectingDispatcher
from anabranch.faults.matching import NodeContext, version_span
from anabranch.faults.rewriting import empty_answer
from anabranch.faults.rule import Rule
from anabranch.protocol import codec
from anabranch.protocol.codec import DecodedRequest
from anabranch.protocol.registry import BY_NAME, Api
from anabranch.protocol.wire import Kind, WireField, fields_of

PEER = Peer("127.0.0.1", 4711)
CONSUMER = {"replica_id": -1, "session_epoch": -1, "acks": 1, "key_type": 0, "resource_type": 2}
"""Where any number would not do."""


def sample(struct: type[Any], version: int, numbers: Iterator[int]) -> Any:
    """A message, or a part of one, that has two elements in each list."""
    return struct(**{field.name: _value(field, version, numbers) for field in fields_of(struct)})


def _value(field: WireField, version: int, numbers: Iterator[int]) -> Any:
    if not field.exists(version) or field.name == "replica_state":
        return field.absent_value()
    if field.is_array:
        return [_one(field, version, numbers) for _ in range(2)]
    return CONSUMER[field.name] if field.name in CONSUMER else _one(field, version, numbers)


def _one(field: WireField, version: int, numbers: Iterator[int]) -> Any:
    if field.struct is not None:
        return sample(field.struct, version, numbers)
    number = next(numbers)
    match field.kind:
        case Kind.TEXT:
            return f"text-{number}"
        case Kind.BYTES | Kind.RECORDS:
            return b""
        case Kind.UUID:
            return number.to_bytes(16, "big")
        case Kind.BOOLEAN:
            return False
        case Kind.FLOAT64:
            return float(number)
        case _:
            return number % 100


def request_of(api: Api, version: int) -> DecodedRequest:
    """A request of an API, as it is read from the wire."""
    body = sample(api.request, version, itertools.count(1))
    read, _ = codec.decode(api.request, version, codec.encode(body, version))
    return DecodedRequest(api, version, 1, "app", read)


def served() -> list[tuple[Api, int]]:
    """Every API and version that is served."""
    spans = ((one.api, version_span(one.versions)) for one in HANDLERS)
    return [(api, version) for api, (first, last) in spans for version in range(first, last + 1)]


class Inner:
    """A dispatcher with given behavior that records requests."""

    throttling = None
    long_polls = frozenset[int]()
    requests = cast(Any, {})

    def __init__(self) -> None:
        self.audiences = peer_versions("3.9", True)
        self.asked: list[DecodedRequest] = []
        self.response: Any = None

    async def answer(self, request: DecodedRequest, peer: Peer) -> Any:
        self.asked.append(request)
        return self.response if self.response is not None else empty_answer(request.api)


class FakeServices:
    """What a faulty dispatcher needs of a node."""

    broker = None

    class settings:
        node_id = 1

    class metadata:
        @staticmethod
        def topic_name(topic_id: bytes) -> str | None:
            return {b"o" * 16: "orders", b"p" * 16: "payments"}.get(topic_id)


SURROUNDINGS = NodeContext(1, FakeServices.metadata.topic_name, lambda session: [])


def armed(rule: Rule | None = None, decide: Decide | None = None, **said: Any) -> ActiveRule:
    """An active rule without listeners."""
    return ActiveRule(rule or Rule(**{"name": "test", **said}), lambda *_: None, decide=decide)


def faulty(inner: Inner, *rules: ActiveRule) -> FaultInjectingDispatcher:
    """The dispatcher with rules around it."""
    made = FaultInjectingDispatcher(cast(Dispatcher, inner), SURROUNDINGS)
    made.set_rules(rules, [])
    return made


def by_name(name: str, version: int) -> DecodedRequest:
    """See request_of."""
    return request_of(BY_NAME[name], version)
