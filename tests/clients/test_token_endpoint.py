"""Clients and brokers get tokens from an issuer, rarely, and log no secret.

Method: an issuer that answers by HTTP, and a cluster that believes it, whose brokers ask it, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from anabranch import Admin
from anabranch.clients.authentication import AuthenticationFailed
from anabranch.clients.http_documents import HttpDocument
from anabranch.clients.security_config import security_of
from anabranch.clients.token_endpoint import TokenEndpoint
from anabranch.cluster.in_process import Cluster
from tests.secured import issuer as issuers
from tests.secured.certificates import OAUTH_MODULE

LISTENER = "SASL_PLAINTEXT"
VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"


def client_properties(url: str, user: str, secret: str) -> dict[str, str]:
    """The properties of a client."""
    return {
        "security.protocol": LISTENER,
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.jaas.config": f'{OAUTH_MODULE} required clientId="{user}" clientSecret="{secret}" scope="kafka";',
    }


async def test_token_is_fetched_once_in_its_lifetime(tmp_path: Path) -> None:
    issuer = issuers.Issuer()
    (tmp_path / "keys").write_text(issuers.jwks(issuer))
    with issuers.TokenEndpoint(issuer, {"broker": "planted", "alice": "planted too"}) as endpoint:
        prefix = f"listener.name.{LISTENER.lower()}.oauthbearer"
        properties = {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": (tmp_path / "keys").as_uri(),
            "sasl.oauthbearer.token.endpoint.url": endpoint.url,
            f"{prefix}.sasl.server.callback.handler.class": VALIDATOR,
            f"{prefix}.sasl.jaas.config": client_properties(endpoint.url, "broker", "planted")["sasl.jaas.config"],
        }
        async with Cluster(2, listeners=[f"{LISTENER}://127.0.0.1:0"], properties=properties) as cluster:
            begun = len(endpoint.asked)
            security = security_of(client_properties(endpoint.url, "alice", "planted too"))
            for _ in range(3):
                async with Admin(cluster.bootstrap_servers, security=security) as admin:
                    assert await admin.list_topics() == []
            assert len(endpoint.asked) == begun + 1
            assert endpoint.asked[-1] == {"grant_type": "client_credentials", "scope": "kafka"}
            wrong = security_of(client_properties(endpoint.url, "alice", "planted wrongly"))
            with pytest.raises(AuthenticationFailed, match="issued no token: 401") as refused:
                await Admin(cluster.bootstrap_servers, security=wrong).start()
            assert "planted" not in str(refused.value) and "planted" not in repr(wrong)


@contextmanager
def answering(status: int, content: bytes, seen: list[str] | None = None) -> Iterator[str]:
    """A server with a fixed response that records request paths."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            if seen is not None:
                seen.append(self.path)
            self.rfile.read(int(self.headers["Content-Length"]))  # closing before would reset the connection
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/token"
        server.shutdown()


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"nothing", b"[]", b"{}", b'{"access_token": 7}', b'{"access_token": "a b"}', b'{"access_token": ""}'),
        *(b'{"access_token": "a", "expires_in": "long"}', b"[" * 100_000),
    ],
)
def test_response_without_token_is_refused(content: bytes) -> None:
    with answering(200, content) as url, pytest.raises(AuthenticationFailed, match="answered with"):
        TokenEndpoint(url, "alice", "secret")()


def test_failing_issuer_is_a_retriable_connection_error() -> None:
    with answering(503, b"") as url, pytest.raises(ConnectionError, match="answered 503") as failed:
        TokenEndpoint(url, "alice", "secret")()
    assert not isinstance(failed.value, AuthenticationFailed)


@pytest.mark.parametrize("error", [ValueError("more than 1 bytes"), TimeoutError("no whole response"), OSError("gone")])
def test_issuer_that_lies_or_hangs_is_a_retriable_connection_error(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which error it is: `test_http_documents.py`."""

    def fail(_: HttpDocument) -> bytes:
        raise error

    monkeypatch.setattr(HttpDocument, "fetch", fail)
    with pytest.raises(OSError, match=str(error)) as failed:
        TokenEndpoint("http://127.0.0.1:1/token", "alice", "secret")()
    assert not isinstance(failed.value, AuthenticationFailed)


@pytest.mark.parametrize(("told", "asked"), [(b"", 2), (b', "expires_in": 600', 1)])
def test_token_without_lifetime_is_fetched_each_time(told: bytes, asked: int) -> None:
    seen: list[str] = []
    with answering(200, b'{"access_token": "a.b.c"' + told + b"}", seen) as url:
        endpoint = TokenEndpoint(url, "alice", "secret")
        assert [endpoint(), endpoint()] == ["a.b.c", "a.b.c"]
    assert len(seen) == asked
