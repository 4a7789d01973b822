"""What is kept of the exchanges of a client, and how it is reported."""

from __future__ import annotations

from anabranch.cluster.link_exchanges import CLIENTS_MAX, KEPT, Exchange, LinkExchanges, RecentExchanges, client_id_of
from anabranch.protocol.apis.api_versions import ApiVersionsRequest
from anabranch.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from anabranch.protocol.connection import ClientConnection, decode_request, encode_response
from anabranch.protocol.errors import ErrorCode

VERSION = 4
HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


class Client:
    """A client and a node behind a link whose exchanges are kept."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.recent = RecentExchanges()
        self.link = LinkExchanges("2", self.recent, lambda: self.now_s)
        self._core = ClientConnection("member-7")

    def ask(self, request: object = HEARTBEAT, version: int = VERSION) -> bytes:
        """Send a request; returns its frame without the length."""
        framed = b"".join(self._core.request(request, version)[1])
        self.link.record("there", framed)
        return framed[4:]

    def answer(self, frame: bytes, code: ErrorCode) -> bytes:
        """The framed response of a node."""
        request = decode_request(frame, {12: (0, VERSION)})
        return b"".join(encode_response(request, HeartbeatResponse(error_code=code)))

    def lines(self) -> list[str]:
        return list(self.recent.lines("member-7", self.now_s))


def framed(response: bytes) -> bytes:
    return (
        response if int.from_bytes(response[:4], "big") == len(response) - 4 else len(response).to_bytes(4) + response
    )


def test_response_in_pieces_is_reported_with_its_error_and_time() -> None:
    client = Client()
    response = framed(client.answer(client.ask(), ErrorCode.REBALANCE_IN_PROGRESS))
    client.now_s = 0.25
    client.link.record("back", response[:5])
    assert client.lines() == ["0.2 s ago: Heartbeat v4 to node 2: no response"]
    client.link.record("back", response[5:])
    assert client.lines() == ["0.2 s ago: Heartbeat v4 to node 2: REBALANCE_IN_PROGRESS after 250 ms"]


def test_responses_are_matched_by_correlation_ids() -> None:
    client = Client()
    client.ask()
    client.link.record("back", framed(client.answer(client.ask(), ErrorCode.NONE)))
    first, second = client.lines()
    assert first.endswith("no response") and second.endswith("NONE after 0 ms")


def test_request_without_response_at_the_end_of_its_connection_is_lost() -> None:
    client = Client()
    client.ask()
    client.link.ended()
    assert client.lines() == ["0.0 s ago: Heartbeat v4 to node 2: the connection ended before the response"]


def test_requests_that_no_consumer_waits_for_are_not_kept() -> None:
    client = Client()
    client.ask(ApiVersionsRequest(), 0)
    assert client.recent.clients == []


def test_last_exchanges_of_each_api_and_the_last_clients_are_kept() -> None:
    client = Client()
    for client.now_s in range(KEPT + 2):  # type: ignore[assignment]
        client.ask()
    assert len(client.lines()) == KEPT and client.lines()[0].startswith(f"{KEPT - 1:.1f} s ago")
    for number in range(CLIENTS_MAX):
        client.recent.keep(f"c{number}", 12, Exchange("1", b"", 0.0))
    assert len(client.recent.clients) == CLIENTS_MAX and "member-7" not in client.recent.clients


def test_response_that_cannot_be_read_is_reported_as_such() -> None:
    assert "unreadable" in Exchange("1", b"\x00\x0c\x00\x04", 0.0, response=b"\0\0\0\1").line(0.0)
    assert "65536 bytes" in Exchange("1", b"\x00\x0c\x00\x04", 0.0, response=bytes(65536)).line(0.0)


def test_client_id_of_a_header_without_one_is_empty() -> None:
    assert client_id_of(bytes(8) + b"\xff\xff") == client_id_of(b"") == ""
