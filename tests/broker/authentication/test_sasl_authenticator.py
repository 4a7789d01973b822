"""The requests that a connection may send before, during and after authentication are Kafka's.

Method: the gate with a machine whose tokens are single words, and a clock that is a number; the pause after a failure
is none. That bytes, sockets and real mechanisms do the same is test_protection's business.
"""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.broker.authentication.sasl_authenticator import SaslAuthenticator
from anabranch.broker.authentication.sasl_exchange import Exchange, SaslProtocolError, SaslRefused, Step
from anabranch.broker.authorization.peer import UNKNOWN_PEER, Peer
from anabranch.broker.dispatch.request_context import AuthenticationFailed, CloseConnection
from anabranch.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from anabranch.protocol.apis.metadata import MetadataRequest
from anabranch.protocol.apis.produce import ProduceRequest
from anabranch.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from anabranch.protocol.apis.sasl_handshake import SaslHandshakeRequest
from anabranch.protocol.codec import DecodedRequest
from anabranch.protocol.connection import UNREAD, bare_token
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.registry import api_of


class Words:
    """A mechanism: `first` is answered, the name of a user ends it, and other words show what may go wrong."""

    def step(self, token: bytes, now_ms: int) -> Step:
        match token:
            case b"first":
                return Step(b"second")
            case b"wrong":
                raise SaslRefused("a wrong word")
            case b"told":
                raise SaslRefused("a wrong word", "told so")
            case b"nonsense":
                raise SaslProtocolError("nonsense")
            case b"short":
                return Step(b"", "alice", now_ms + 5000)
        return Step(b"welcome", token.decode())


class Demanding:
    failure_delay_s = 0.0
    receive_bytes_max = 77
    longest_ms = 0

    def __init__(self) -> None:
        self.mechanisms: dict[str, Any] = {"WORDS": Words, "OTHER": Words}

    def lifetime_ms(self, mechanism: str, expires_ms: int | None, now_ms: int) -> int | None:
        return self.longest_ms or (None if expires_ms is None else expires_ms - now_ms)


class World:
    """A gate, the connection before it and the broker behind it."""

    def __init__(self) -> None:
        self.now_ms = 10_000
        self.events: list[str] = []
        self.versions_error = 0
        self.demands = Demanding()
        self.gate = SaslAuthenticator(self.demands, self, lambda: self, lambda: self.now_ms)

    async def answer(self, request: DecodedRequest, peer: Peer) -> Any:
        if request.api.key == 18:
            return ApiVersionsResponse(error_code=self.versions_error, api_keys=[])
        return f"answered {request.api.name}"

    def expect_tokens(self) -> None:
        self.events.append("tokens")

    def on_logged_in(self, principal: str, *, by_token: bool) -> None:
        self.events.append(principal)

    def on_login_required(self, frame_bytes_max: int) -> None:
        self.events.append(f"questioned {frame_bytes_max}")

    async def ask(self, body: Any, version: int = 1, read: bool = True) -> Any:
        request = DecodedRequest(api_of(type(body)), version, 1, "c", body if read else UNREAD)
        return await self.gate.answer(request, UNKNOWN_PEER)

    async def token(self, token: bytes) -> Any:
        return await self.gate.answer(bare_token(token, {}, 0), UNKNOWN_PEER)

    async def handshake(self, mechanism: str = "WORDS", version: int = 1) -> Any:
        return await self.ask(SaslHandshakeRequest(mechanism=mechanism), version)

    async def authenticate(self, token: bytes, version: int = 1) -> Any:
        return await self.ask(SaslAuthenticateRequest(auth_bytes=token), version)

    async def metadata(self) -> Any:
        return await self.ask(MetadataRequest(topics=None), 9, read=self.gate.is_authenticated)


VERSIONS = ApiVersionsRequest(client_software_name="c", client_software_version="1")


async def test_client_authenticates_after_api_versions_and_handshake() -> None:
    world = World()
    assert (await world.ask(VERSIONS)).error_code == 0
    shaken = await world.handshake()
    assert (shaken.error_code, shaken.mechanisms) == (0, ["WORDS", "OTHER"])
    assert (await world.authenticate(b"first")).auth_bytes == b"second"
    assert not world.gate.is_authenticated
    last = await world.authenticate(b"alice")
    assert (last.error_code, last.auth_bytes, last.session_lifetime_ms) == (0, b"welcome", 0)
    assert world.events == ["questioned 77", "User:alice"]
    assert await world.metadata() == "answered Metadata"
    assert await world.handshake() == "answered SaslHandshake"  # which refuses it: the session has no end


async def test_second_api_versions_request_is_refused_unless_the_first_failed() -> None:
    world = World()
    world.versions_error = 35
    assert (await world.ask(VERSIONS)).error_code == 35
    world.versions_error = 0
    await world.ask(VERSIONS)
    with pytest.raises(CloseConnection, match="ApiVersions twice") as closed:
        await world.ask(VERSIONS)
    assert not isinstance(closed.value, AuthenticationFailed)  # at once, without the pause


async def test_request_before_the_handshake_ends_the_connection() -> None:
    with pytest.raises(AuthenticationFailed, match="Metadata before authentication") as closed:
        await World().metadata()
    assert closed.value.response is None
    with pytest.raises(AuthenticationFailed, match="SaslAuthenticate before authentication") as closed:
        await World().authenticate(b"alice")
    assert closed.value.response is None


async def test_request_between_handshake_and_token_is_refused() -> None:
    world = World()
    await world.handshake()
    with pytest.raises(AuthenticationFailed, match="Metadata before authentication") as closed:
        await world.metadata()
    assert closed.value.response is None  # a Metadata has no place for an error of its own
    world = World()
    await world.handshake()
    with pytest.raises(AuthenticationFailed, match="SaslHandshake twice") as closed:
        await world.handshake()
    assert closed.value.response.error_code == 34
    world = World()
    await world.handshake()
    with pytest.raises(AuthenticationFailed, match="ApiVersions before authentication") as closed:
        await world.ask(VERSIONS)
    assert closed.value.response.error_code == 34
    world = World()
    await world.handshake()
    with pytest.raises(AuthenticationFailed, match="Produce before authentication"):
        await world.ask(ProduceRequest(acks=1, timeout_ms=1, topic_data=[]), 9, read=False)


async def test_unknown_mechanism_is_answered_with_the_enabled_ones() -> None:
    with pytest.raises(AuthenticationFailed, match="unsupported mechanism 'words'") as closed:
        await World().handshake("words")
    assert (closed.value.response.error_code, closed.value.response.mechanisms) == (33, ["WORDS", "OTHER"])


@pytest.mark.parametrize(
    ("token", "told"),
    [
        (b"wrong", "Authentication failed during authentication due to invalid credentials with SASL mechanism WORDS"),
        (b"told", "told so"),
    ],
)
async def test_refusal_has_the_mechanisms_message_or_the_general_one(token: bytes, told: str) -> None:
    world = World()
    await world.handshake()
    with pytest.raises(AuthenticationFailed, match="a wrong word") as closed:
        await world.authenticate(token)
    assert (closed.value.response.error_code, closed.value.response.error_message) == (58, told)


async def test_malformed_token_ends_the_connection_without_a_response() -> None:
    world = World()
    await world.handshake()
    with pytest.raises(CloseConnection, match="nonsense") as closed:
        await world.authenticate(b"nonsense")
    assert closed.value.response is None


async def test_handshake_v0_is_followed_by_tokens_without_header() -> None:
    world = World()
    await world.handshake(version=0)
    assert await world.token(b"first") == b"second"
    assert await world.token(b"alice") == b"welcome"
    assert world.events == ["questioned 77", "tokens", "User:alice"]
    world = World()
    await world.handshake(version=0)
    with pytest.raises(AuthenticationFailed) as closed:
        await world.token(b"told")
    assert closed.value.response is None
    world = World()
    await world.handshake(version=0)
    with pytest.raises(CloseConnection, match="a wrong word") as ended:
        await world.token(b"wrong")
    assert ended.value.response is None and not isinstance(
        ended.value, AuthenticationFailed
    )  # Kafka's mechanism says nothing


async def logged_in(token: bytes = b"short") -> World:
    world = World()
    await world.handshake()
    assert (await world.authenticate(token)).session_lifetime_ms == 5000
    world.events.clear()
    return world


async def test_request_after_session_expiry_ends_the_connection() -> None:
    world = await logged_in()
    world.now_ms += 4999
    assert await world.metadata() == "answered Metadata"
    world.now_ms += 1
    with pytest.raises(CloseConnection, match="its authentication session has expired"):
        await world.metadata()


async def test_client_reauthenticates_before_or_after_session_expiry() -> None:
    for later_ms in (1000, 9000):
        world = await logged_in()
        world.now_ms += later_ms
        assert (await world.handshake()).error_code == 0
        assert not world.gate.is_authenticated
        assert (await world.authenticate(b"short")).session_lifetime_ms == 5000
        assert world.events == ["questioned 77", "User:alice"]
        world.now_ms += 4000
        assert await world.metadata() == "answered Metadata"


async def test_reauthentication_within_a_second_of_the_last_is_refused() -> None:
    world = await logged_in()
    assert (await world.handshake()).error_code == 0
    await world.authenticate(b"short")
    world.now_ms += 999
    assert await world.handshake() == "answered SaslHandshake"
    assert world.gate.is_authenticated
    world.now_ms += 1
    assert (await world.handshake()).error_code == 0


async def test_reauthentication_with_unknown_mechanism_ends_the_connection() -> None:
    world = await logged_in()
    with pytest.raises(CloseConnection, match="re-authentication with 'WHAT'") as closed:
        await world.handshake("WHAT")
    assert closed.value.response is None and not isinstance(closed.value, AuthenticationFailed)


async def test_failure_delay_applies_to_malformed_headers_before_the_handshake() -> None:
    length, header, body = (DecodeError("nonsense", part=part) for part in ("length", "header", "body"))  # type: ignore[arg-type]
    world = World()
    assert [world.gate.delays_failure(one) for one in (length, header, body)] == [True, True, False]
    await world.handshake()
    assert [world.gate.delays_failure(one) for one in (length, header, body)] == [True, False, False]
    await world.authenticate(b"alice")
    assert not any(world.gate.delays_failure(one) for one in (length, header, body))


async def test_reauthentication_with_another_user_or_mechanism_is_refused() -> None:
    world = await logged_in()
    world.now_ms += 1000
    await world.handshake()
    with pytest.raises(AuthenticationFailed) as closed:
        await world.authenticate(b"bob")
    assert closed.value.response.error_code == 58
    assert closed.value.response.error_message == (
        "Cannot change principals during re-authentication from User.alice: User.bob"
    )
    world = await logged_in()
    world.now_ms += 1000
    assert (await world.handshake("OTHER")).error_code == 0
    with pytest.raises(AuthenticationFailed, match="another mechanism") as closed:
        await world.authenticate(b"alice")
    assert closed.value.response is None


async def test_failed_reauthentication_is_named_in_the_error_message() -> None:
    world = await logged_in()
    world.now_ms += 1000
    await world.handshake()
    with pytest.raises(AuthenticationFailed) as closed:
        await world.authenticate(b"wrong")
    assert "during re-authentication" in closed.value.response.error_message


def test_words_implement_the_exchange_protocol() -> None:
    machine: Exchange = Words()
    assert machine.step(b"x", 0).user == "x"
