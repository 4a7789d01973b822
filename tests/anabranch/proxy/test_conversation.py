"""Frames leave in their order of arrival, in both directions."""

from __future__ import annotations

import random
import struct

import pytest

from anabranch.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from anabranch.protocol.connection import ClientConnection
from anabranch.protocol.errors import DecodeError
from anabranch.proxy.conversation import Conversation, Handling, Slot, frame_parts
from anabranch.proxy.request_header import RequestHeader

READ, INTERCEPTED, OWN, HANDSHAKE = 1001, 1002, 1003, 17


class Marks:
    """Marks the responses that it sees; the API key determines a request's handling."""

    def handling_of(self, head: RequestHeader) -> Handling:
        return {
            READ: Handling.READ,
            INTERCEPTED: Handling.INTERCEPT,
            OWN: Handling.ANSWER,
            HANDSHAKE: Handling.READ,
        }.get(head.key, Handling.PASS)

    def rewrite(self, head: RequestHeader, frame: bytes) -> bytes:
        return frame + b"!"

    def own_answer(self, head: RequestHeader) -> bytes:
        return struct.pack(">i", head.correlation_id) + b"own"


def conversation() -> Conversation:
    return Conversation(Marks(), 10_000, 10_000)


def request(key: int, number: int, body: bytes = b"", version: int = 0) -> bytes:
    return b"".join(frame_parts(struct.pack(">hhih", key, version, number, 1) + b"c" + body))


def answer(number: int, body: bytes = b"") -> bytes:
    return b"".join(frame_parts(struct.pack(">i", number) + body))


def ask(core: Conversation, data: bytes) -> list[Slot]:
    core.requests.feed(data)
    found = []
    while (slot := core.next_request()) is not None:
        found.append(slot)
    return found


def hear(core: Conversation, data: bytes) -> list[tuple[Slot, bytes]]:
    core.answers.feed(data)
    found = []
    while (one := core.next_answer()) is not None:
        found.append(one)
    return found


def written(chunks: list[bytes | bytearray | memoryview]) -> bytes:
    data = b"".join(map(bytes, chunks))
    chunks.clear()
    return data


def test_other_requests_pass_and_read_responses_are_changed() -> None:
    core = conversation()
    wire = request(3, 1) + request(READ, 2, b"x" * 9) + request(4, 3)
    assert ask(core, wire) == [] and written(core.to_upstream) == wire
    assert hear(core, answer(1, b"a") + answer(2, b"b") + answer(3, b"c")) == []
    assert written(core.to_client) == answer(1, b"a") + answer(2, b"b!") + answer(3, b"c")


@pytest.mark.parametrize("seed", range(10))
def test_conversation_does_not_depend_on_chunks(seed: int) -> None:
    rng, core = random.Random(seed), conversation()
    keys = [rng.choice([3, READ, OWN]) for _ in range(60)]
    requests = b"".join(request(key, number, b"q" * rng.randrange(50)) for number, key in enumerate(keys))
    bodies = [b"r" * rng.randrange(300) for _ in keys]
    answered = b"".join(answer(number, bodies[number]) for number, key in enumerate(keys) if key != OWN)
    got_up, got_down = b"", b""
    pieces = [(requests, ask), (answered, hear)]
    for data, take in pieces:
        while data:
            size = rng.choice([1, 2, 5, 40, 700])
            assert not take(core, data[:size])  # type: ignore[operator]
            data = data[size:]
            got_up += written(core.to_upstream)
            got_down += written(core.to_client)
    hear(core, b"")
    got_down += written(core.to_client)
    expected = [
        answer(number, b"own" if key == OWN else bodies[number] + (b"!" if key == READ else b""))
        for number, key in enumerate(keys)
    ]
    assert got_down == b"".join(expected) and not core.slots
    assert got_up.count(struct.pack(">h", 3)) >= keys.count(3)


def test_intercepted_request_blocks_later_ones_until_sent() -> None:
    core = conversation()
    (slot,) = ask(core, request(3, 1) + request(INTERCEPTED, 2, b"mine") + request(3, 3))
    assert slot.frame.endswith(b"mine") and core.blocked
    assert written(core.to_upstream) == request(3, 1)
    assert ask(core, request(3, 4)) == [] and not core.to_upstream
    core.send(slot, [b"something else"])
    assert not core.blocked and core.next_request() is None
    assert written(core.to_upstream) == b"something else" + request(3, 3) + request(3, 4)
    assert hear(core, answer(1)) == []
    ((found, frame),) = hear(core, answer(2, b"x") + answer(3))
    assert found is slot and frame.endswith(b"x!")
    assert written(core.to_client) == answer(1), "what is behind it waits for it"
    core.close(slot, [b"changed"])
    assert core.next_answer() is None and written(core.to_client) == b"changed" + answer(3)


def test_request_answered_by_proxy_keeps_its_place() -> None:
    core = conversation()
    (slot,) = ask(core, request(3, 1) + request(INTERCEPTED, 2) + request(3, 3))
    slot.done = True
    assert core.next_request() is None and written(core.to_upstream) == request(3, 1) + request(3, 3)
    assert hear(core, answer(1) + answer(3)) == [] and written(core.to_client) == answer(1)
    core.close(slot, [b"refused"])
    assert core.next_answer() is None and written(core.to_client) == b"refused" + answer(3)


def test_produce_without_response_is_not_awaited() -> None:
    core = conversation()
    data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=b"x")])]
    silent = ProduceRequest(transactional_id=None, acks=0, timeout_ms=1, topic_data=data)
    wire = b"".join(ClientConnection("c").request(silent, 9)[1])
    ask(core, wire + request(3, 7))
    hear(core, answer(7))
    assert written(core.to_upstream) == wire + request(3, 7) and written(core.to_client) == answer(7)


def test_sasl_tokens_follow_handshake_v0_and_end_with_first_request() -> None:
    core = conversation()
    ask(core, request(HANDSHAKE, 1))
    hear(core, answer(1, b"\0\0\0\0\0\0"))
    tokens = b"".join(frame_parts(b"\0alice\0secret"))
    ask(core, tokens)
    hear(core, b"".join(frame_parts(b"")))
    ask(core, request(READ, 2))
    hear(core, answer(2))
    assert written(core.to_upstream) == request(HANDSHAKE, 1) + tokens + request(READ, 2)
    assert written(core.to_client).endswith(b"".join(frame_parts(b"")) + answer(2, b"!"))


def test_refused_handshake_is_followed_by_requests() -> None:
    core = conversation()
    ask(core, request(HANDSHAKE, 1))
    hear(core, answer(1, b"\0\x21\0\0\0\0"))
    with pytest.raises(DecodeError):
        ask(core, b"".join(frame_parts(b"\0a\0b")))


@pytest.mark.parametrize(
    ("asked", "data", "what"),
    [
        (b"", answer(1), "without a request"),
        (request(3, 1), answer(2), "answer 2 instead of 1"),
        (request(READ, 1), answer(2), "answer 2 instead of 1"),
        (request(3, 1), struct.pack(">i", 2) + b"xx", "without a correlation id"),
        (request(READ, 1), struct.pack(">ii", 20_000, 1), "20000 bytes, allowed are 10000"),
        (request(3, 1), b"HTTP/1.1 400", "an HTTP request"),
    ],
)
def test_invalid_upstream_response_is_an_error(asked: bytes, data: bytes, what: str) -> None:
    core = conversation()
    ask(core, asked)
    with pytest.raises(DecodeError, match=what):
        hear(core, data)
