"""PLAIN: checks in Kafka's order, without the password in messages."""

from __future__ import annotations

import pytest

from anabranch.broker.authentication.plain import PlainServer
from anabranch.broker.authentication.sasl_exchange import SaslRefused, Step

PASSWORDS = {"alice": "in wonderland", "bób": "pässword", "empty": ""}
INVALID = "Authentication failed: Invalid username or password"
OTHER_ID = "Authentication failed: Client requested an authorization id that is different from username"


@pytest.mark.parametrize("token", ["\0alice\0in wonderland", "alice\0alice\0in wonderland", "\0bób\0pässword"])
def test_right_password_is_accepted(token: str) -> None:
    assert PlainServer(PASSWORDS).step(token.encode(), 0) == Step(b"", token.split("\0")[1])


@pytest.mark.parametrize(
    ("token", "client_message"),
    [
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0in wonderland\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0" * 500_000, "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0in wonderland", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0empty\0", "Authentication failed: password not specified"),
        (b"\0alice\0in Wonderland", INVALID),
        (b"\0alice\0in wonder", INVALID),
        (b"\0Alice\0in wonderland", INVALID),
        (b"\0nobody\0\xff", INVALID),
        (b"\0nobody\0\xef\xbf\xbd", INVALID),
        (b"mallory\0alice\0wrong", INVALID),
        (b"mallory\0alice\0in wonderland", OTHER_ID),
    ],
)
def test_wrong_or_malformed_token_is_refused(token: bytes, client_message: str) -> None:
    with pytest.raises(SaslRefused) as refused:
        PlainServer(PASSWORDS).step(token, 0)
    assert refused.value.client_message == client_message
    assert refused.value.__context__ is None


def test_password_is_in_no_repr_and_no_error() -> None:
    server = PlainServer(PASSWORDS)
    with pytest.raises(SaslRefused) as refused:
        server.step(b"\0alice\0planted secret", 0)
    assert "secret" not in repr(refused.value) + str(refused.value)
    assert "wonderland" not in repr(server)
