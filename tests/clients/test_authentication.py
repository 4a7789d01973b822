"""A connection authenticates, verifies the broker, and re-authenticates before its session ends.

Method: `log_in` with answers by hand; a connection whose broker ends sessions early, with requests that never pause.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.error import URLError

import pytest

from anabranch.clients.authentication import AuthenticationFailed, log_in
from anabranch.clients.connection import Connection
from anabranch.clients.security import Security
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.apis.metadata import MetadataRequest
from anabranch.protocol.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from anabranch.protocol.apis.sasl_handshake import SaslHandshakeResponse
from tests.secured.certificates import plain_users

PLAIN = Security(None, "PLAIN", "alice", "secret")
LISTENER = "SASL_PLAINTEXT://127.0.0.1:0"


async def log_in_with(*answers: Any) -> float | None:
    """The outcome of a login that is answered like this."""
    queue = iter(answers)

    async def call(request: Any) -> Any:
        return next(queue)

    return await log_in(PLAIN, call)


def shaken(code: int = 0, *mechanisms: str) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=code, mechanisms=list(mechanisms))


def believed(**more: Any) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(**{"error_code": 0, "error_message": None, "auth_bytes": b"", **more})


async def test_session_lifetime_determines_reauthentication_time() -> None:
    assert await log_in_with(shaken(), believed()) is None
    assert await log_in_with(shaken(), believed(session_lifetime_ms=10_000)) == 8.5


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ((shaken(33, "SCRAM-SHA-256"),), "does not support PLAIN; it supports SCRAM-SHA-256"),
        ((shaken(34),), "has no SASL"),
        ((shaken(35),), "UNSUPPORTED_VERSION"),
        ((shaken(), believed(error_code=58, error_message="no such user")), "no such user"),
        ((shaken(), believed(error_code=58)), "SASL_AUTHENTICATION_FAILED"),
    ],
)
async def test_refused_authentication_names_reason(answers: Any, says: str) -> None:
    with pytest.raises(AuthenticationFailed, match=says):
        await log_in_with(*answers)


def short_sessions(ms: int) -> dict[str, str]:
    return {
        **plain_users("SASL_PLAINTEXT", admin="a", alice="secret"),
        "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": str(ms),
    }


async def test_requests_continue_during_reauthentication(monkeypatch: pytest.MonkeyPatch) -> None:
    logins = 0
    step = SaslAuthenticateRequest.__init__

    def counting(self: Any, **fields: Any) -> None:
        nonlocal logins
        logins += 1
        step(self, **fields)

    async with Cluster(1, listeners=[LISTENER], properties=short_sessions(1500)) as cluster:
        connection = await Connection.open(*cluster.address(1), client_id="test", security=PLAIN)
        monkeypatch.setattr("anabranch.clients.authentication.SaslAuthenticateRequest.__init__", counting)
        pending: set[asyncio.Future[Any]] = set()
        while logins < 3:
            pending.add(connection.send(MetadataRequest(topics=[])))
            if len(pending) > 5:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                assert all(one.result().brokers for one in done)
        await asyncio.gather(*pending)
        await connection.close()


async def test_failed_reauthentication_closes_connection(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Cluster(1, listeners=[LISTENER], properties=short_sessions(1500)) as cluster:
        connection = await Connection.open(*cluster.address(1), client_id="test", security=PLAIN)
        assert connection._login is not None
        connection._login.cancel()
        monkeypatch.setattr("anabranch.broker.authentication.sasl_authenticator.REAUTHENTICATION_PAUSE_MS", 0)
        task = asyncio.ensure_future(connection._log_in_again(Security(None, "PLAIN", "alice", "changed")))
        await asyncio.sleep(0)
        held = connection.send(MetadataRequest(topics=[]))
        await task
        with pytest.raises(ConnectionError, match="re-authentication failed"):
            await held
        assert connection.closed
        assert "re-authentication failed" in caplog.text


@pytest.mark.parametrize("error", [URLError("the issuer is down"), FileNotFoundError("token"), ValueError("a bug")])
async def test_connection_without_a_new_token_is_closed(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its requests must not wait for ever behind a login that has ended."""
    async with Cluster(1, listeners=[LISTENER], properties=short_sessions(1500)) as cluster:
        connection = await Connection.open(*cluster.address(1), client_id="test", security=PLAIN)
        assert connection._login is not None
        connection._login.cancel()

        def login(_: Security) -> Any:
            raise error

        monkeypatch.setattr(Security, "login", login)
        monkeypatch.setattr("anabranch.broker.authentication.sasl_authenticator.REAUTHENTICATION_PAUSE_MS", 0)
        connection._begin_login(PLAIN)
        await asyncio.sleep(0)
        held = connection.send(MetadataRequest(topics=[]))
        async with asyncio.timeout(10):
            with pytest.raises(ConnectionError, match="re-authentication failed"):
                await held
        assert connection.closed


async def test_any_error_of_a_source_of_tokens_is_a_failed_login() -> None:
    """It ends no client: whoever repeats lost connections repeats this, too."""

    def token() -> str:
        raise RuntimeError("the issuer is down")

    async def call(request: Any) -> Any:
        return shaken()

    with pytest.raises(AuthenticationFailed, match="no token: RuntimeError"):
        await log_in(Security(None, "OAUTHBEARER", token=token), call)


async def test_connection_that_ends_with_its_reauthentication_is_closed_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Cluster(1, listeners=[LISTENER], properties=short_sessions(60_000)) as cluster:
        connection = await Connection.open(*cluster.address(1), client_id="test", security=PLAIN)

        async def end_with_it(security: Security, call: Any) -> None:
            connection.connection_lost(None)

        monkeypatch.setattr("anabranch.clients.connection.log_in", end_with_it)
        await connection._log_in_again(PLAIN)
        assert connection.closed
