"""OAUTHBEARER: the messages of RFC 7628, and the two steps of a refusal."""

from __future__ import annotations

import pytest

from anabranch.broker.authentication.oauthbearer import BadToken, Bearer, OAuthBearerServer
from anabranch.broker.authentication.sasl_exchange import SaslProtocolError, SaslRefused, Step

GOOD = b"n,,\x01auth=Bearer good\x01\x01"


def read(token: str, now_ms: int) -> Bearer:
    if token == "narrow":
        raise BadToken("not all of the required scope", ("a", "b"))
    if token != "good":
        raise BadToken(f"a token that says {token}")
    return Bearer("alice", now_ms + 60_000)


@pytest.mark.parametrize(
    "first",
    [GOOD, b"n,a=alice,\x01auth=bEaReR   good\x01\x01", b"n,,\x01host=h\x01auth=Bearer good\x01port=9\x01\x01"],
)
def test_valid_token_determines_user_and_session_lifetime(first: bytes) -> None:
    assert OAuthBearerServer(read).step(first, 1000) == Step(b"", "alice", 61_000)


@pytest.mark.parametrize(
    ("token", "client_message"),
    [
        ("planted", '{"status":"invalid_token"}'),
        ("narrow", '{"status":"insufficient_scope", "scope":"[a, b]"}'),
    ],
)
def test_invalid_token_is_answered_with_an_error_before_it_is_refused(token: str, client_message: str) -> None:
    server = OAuthBearerServer(read)
    assert server.step(b"n,,\x01auth=Bearer %s\x01\x01" % token.encode(), 0) == Step(client_message.encode())
    with pytest.raises(SaslRefused) as refused:
        server.step(b"\x01", 0)
    assert refused.value.client_message == client_message
    assert token not in str(refused.value)


def test_client_may_send_a_valid_token_after_an_invalid_one() -> None:
    server = OAuthBearerServer(read)
    server.step(b"n,,\x01auth=Bearer bad\x01\x01", 0)
    assert server.step(GOOD, 0).user == "alice"


def test_authorization_id_of_another_user_is_refused() -> None:
    with pytest.raises(SaslRefused, match=r"\(root\).*\(alice\)"):
        OAuthBearerServer(read).step(b"n,a=root,\x01auth=Bearer good\x01\x01", 0)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"\x01",
        GOOD[:-1],
        b"n,,\x01\x01",
        b"y,,\x01auth=Bearer good\x01\x01",
        b"n,,\x01auth=Bearer g\xc3\xb6\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer good\x01\x01\n",
    ],
)
def test_malformed_first_message_is_refused_with_the_general_text(first: bytes) -> None:
    with pytest.raises(SaslRefused) as refused:
        OAuthBearerServer(read).step(first, 0)
    assert refused.value.client_message is None


def test_scheme_other_than_bearer_ends_the_connection() -> None:
    with pytest.raises(SaslProtocolError, match="scheme 'Basic'"):
        OAuthBearerServer(read).step(b"n,,\x01auth=Basic good\x01\x01", 0)
