"""Authenticates one connection of a SASL listener, and limits its requests until the login completes.

    first        ApiVersions, SaslHandshake              other requests: closed without a response
    handshaken   SaslAuthenticate, or bare tokens (v0)   other requests: their response with ILLEGAL_SASL_STATE
    complete     all requests, until the session ends; SaslHandshake starts a re-authentication (KIP-368)

A failed login is answered and closed only after `connection.failed.authentication.delay.ms`, to slow down password
guessing. Most malformed input closes the connection at once. Before the login completes, only these three requests
are decoded. Pure except for that delay. Sources: `SaslServerAuthenticator`, `KafkaChannel.prepare`,
`Processor.processCompletedReceives`.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from anabranch.broker.authentication.sasl_exchange import SaslProtocolError, SaslRefused, Step, general_refusal
from anabranch.broker.dispatch.dispatcher import error_response_or_none
from anabranch.broker.dispatch.request_context import AuthenticationFailed, CloseConnection
from anabranch.protocol.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from anabranch.protocol.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from anabranch.protocol.connection import is_token
from anabranch.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from anabranch.broker.authentication.sasl_exchange import Exchange
    from anabranch.broker.authorization.peer import Peer
    from anabranch.protocol.codec import DecodedRequest
    from anabranch.protocol.errors import DecodeError

API_VERSIONS: Final = 18
SASL_HANDSHAKE: Final = 17
REAUTHENTICATION_PAUSE_MS: Final = 1000
"""The minimum time between two re-authentications (`MIN_REAUTH_INTERVAL_ONE_SECOND`)."""


class Answerer(Protocol):
    """Handles requests of an authenticated connection."""

    async def answer(self, request: DecodedRequest, peer: Peer) -> Any:
        """See `Dispatcher`."""


class AuthenticatedConnection(Protocol):
    """The interface of a connection that its authenticator uses."""

    def expect_tokens(self) -> None:
        """Treat the following frames as bare tokens (SaslHandshake v0)."""

    def on_logged_in(self, principal: str, *, by_token: bool) -> None:
        """Set the principal, and allow all requests."""

    def on_login_required(self, frame_bytes_max: int) -> None:
        """Require a login: accept only its requests, in frames up to this size."""


class SaslSettings(Protocol):
    """The SASL settings of a listener; see `ListenerSecurity`."""

    mechanisms: dict[str, Callable[[], Exchange]]
    failure_delay_s: float
    receive_bytes_max: int

    def lifetime_ms(self, mechanism: str, expires_ms: int | None, now_ms: int) -> int | None:
        """Return how long a login stays valid; None: without limit."""


class State(enum.Enum):
    """The state of a connection's login."""

    FIRST = enum.auto()
    VERSIONS_SENT = enum.auto()
    HANDSHAKEN = enum.auto()
    COMPLETE = enum.auto()


class SaslAuthenticator:
    """Authenticates one connection."""

    def __init__(
        self,
        settings: SaslSettings,
        connection: AuthenticatedConnection,
        answerer: Callable[[], Answerer],
        now_ms: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._connection = connection
        self._answerer = answerer
        self._now_ms = now_ms
        self._state = State.FIRST
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._principal = ""
        self._ends_ms: int | None = None
        self._again_ms: int | None = None
        """The start of the latest re-authentication."""
        connection.on_login_required(settings.receive_bytes_max)

    @property
    def is_authenticated(self) -> bool:
        """Whether the login has completed."""
        return self._state is State.COMPLETE

    async def answer(self, request: DecodedRequest, peer: Peer) -> Any:
        """Handle a request. Raises CloseConnection, with the last response, if any."""
        if self._state is State.COMPLETE:
            if request.api.key == SASL_HANDSHAKE and self._may_log_in_again():
                self._again_ms = self._now_ms()
                self._state = State.VERSIONS_SENT
                self._connection.on_login_required(self._settings.receive_bytes_max)
            elif self._ends_ms is not None and self._now_ms() >= self._ends_ms:
                raise CloseConnection("its authentication session has expired")
            else:
                return await self._answerer().answer(request, peer)
        try:
            if is_token(request):
                return self._token(request.body)
            if isinstance(request.body, SaslHandshakeRequest):
                return self._handshake(request.body, request.version)
            if isinstance(request.body, SaslAuthenticateRequest) and self._state is State.HANDSHAKEN:
                return self._authenticate(request.body.auth_bytes)
            if request.api.key == API_VERSIONS and self._state is State.FIRST:
                return await self._versions(request, peer)
            if request.api.key == API_VERSIONS and self._state is State.VERSIONS_SENT and not self._principal:
                raise CloseConnection("ApiVersions twice before authentication")
            answer = error_response_or_none(request, ErrorCode.ILLEGAL_SASL_STATE)
            _authentication_failure(
                f"{request.api.name} before authentication", answer if self._state is State.HANDSHAKEN else None
            )
        except AuthenticationFailed:
            await self.wait_failure_delay()
            raise

    def delays_failure(self, nonsense: DecodeError) -> bool:
        """Whether to delay the close after malformed input. A valid request header closes at once, as in Kafka."""
        if self._state is State.COMPLETE:
            return False
        return nonsense.part == "length" or (nonsense.part == "header" and self._state is State.FIRST)

    async def wait_failure_delay(self) -> None:
        """Wait for the delay after a failed login."""
        await asyncio.sleep(self._settings.failure_delay_s)

    def _may_log_in_again(self) -> bool:
        began = self._again_ms
        return self._ends_ms is not None and (began is None or self._now_ms() - began >= REAUTHENTICATION_PAUSE_MS)

    async def _versions(self, request: DecodedRequest, peer: Peer) -> Any:
        response = await self._answerer().answer(request, peer)
        if response is not None and response.error_code == ErrorCode.NONE:
            self._state = State.VERSIONS_SENT
        return response

    def _handshake(self, request: SaslHandshakeRequest, version: int) -> SaslHandshakeResponse:
        mechanisms = list(self._settings.mechanisms)
        if self._state is State.HANDSHAKEN:
            _authentication_failure(
                "SaslHandshake twice", SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
            )
        begin = self._settings.mechanisms.get(request.mechanism)
        if begin is None and self._principal:
            raise CloseConnection(f"re-authentication with {request.mechanism!r}")
        if begin is None:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            _authentication_failure(
                f"unsupported mechanism {request.mechanism!r}",
                SaslHandshakeResponse(error_code=code, mechanisms=mechanisms),
            )
        self._exchange = begin() if not self._principal or request.mechanism == self._mechanism else None
        self._mechanism = self._mechanism or request.mechanism
        self._state = State.HANDSHAKEN
        if version == 0:
            self._connection.expect_tokens()
        return SaslHandshakeResponse(error_code=ErrorCode.NONE, mechanisms=mechanisms)

    def _authenticate(self, token: bytes) -> SaslAuthenticateResponse:
        try:
            step, lifetime_ms = self._step(token)
        except SaslRefused as refused:
            client_message = refused.client_message or general_refusal(self._mechanism, again=bool(self._principal))
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
            _authentication_failure(
                str(refused), SaslAuthenticateResponse(error_code=code, error_message=client_message, auth_bytes=b"")
            )
        return SaslAuthenticateResponse(
            error_code=ErrorCode.NONE, error_message="", auth_bytes=step.answer, session_lifetime_ms=lifetime_ms
        )

    def _token(self, token: bytes) -> bytes:
        """Handle a bare token of SaslHandshake v0, whose client gets no error message.

        If the mechanism has no error text, the connection closes without delay, because Kafka's `SaslException` is an
        IOException there.
        """
        try:
            return self._step(token)[0].answer
        except SaslRefused as refused:
            if refused.client_message is None:
                raise CloseConnection(f"not authenticated: {refused}") from None
            _authentication_failure(str(refused), None)

    def _step(self, token: bytes) -> tuple[Step, int]:
        """Return the next step and the login's lifetime in ms; 0 before the last step, or without a limit."""
        if self._exchange is None:
            _authentication_failure("re-authentication with another mechanism", None)
        now_ms = self._now_ms()
        try:
            step = self._exchange.step(token, now_ms)
        except SaslProtocolError as nonsense:
            raise CloseConnection(str(nonsense)) from None
        if step.user is None:
            return step, 0
        principal = f"User:{step.user}"
        if self._principal and principal != self._principal:
            before, after = self._principal.replace(":", ".", 1), principal.replace(":", ".", 1)
            message = f"Cannot change principals during re-authentication from {before}: {after}"
            raise SaslRefused(message, message)
        lifetime_ms = self._settings.lifetime_ms(self._mechanism, step.expires_ms, now_ms)
        self._ends_ms = None if lifetime_ms is None else now_ms + lifetime_ms
        self._principal, self._exchange, self._state = principal, None, State.COMPLETE
        self._connection.on_logged_in(principal, by_token=step.by_token)
        return step, lifetime_ms or 0


def _authentication_failure(reason: str, answer: Any) -> NoReturn:
    raise AuthenticationFailed(f"not authenticated: {reason}", answer)
