"""Unsigned tokens: required claims, and refusals."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from anabranch.broker.authentication.oauthbearer import BadToken, Bearer
from anabranch.broker.authentication.unsecured_tokens import UnsecuredTokens

NOW_MS = 1_700_000_000_000
NOW_S = NOW_MS // 1000


def part(content: object) -> str:
    raw = content if isinstance(content, str) else json.dumps(content)
    return base64.b64encode(raw.encode()).decode().rstrip("=")


def token(header: object = None, **claims: Any) -> str:
    kept = {"sub": "alice", "exp": NOW_S + 60, **claims}
    header = {"alg": "none"} if header is None else header
    return f"{part(header)}.{part({name: one for name, one in kept.items() if one is not None})}."


def claiming(claims: str) -> str:
    return f"{part({'alg': 'none'})}.{part(claims)}."


@pytest.mark.parametrize("claims", [{}, {"iat": NOW_S}, {"exp": NOW_S + 60.0, "iat": NOW_S - 0.5}, {"iat": None}])
def test_token_within_its_lifetime_is_accepted(claims: dict[str, Any]) -> None:
    assert UnsecuredTokens().read(token(**claims), NOW_MS) == Bearer("alice", NOW_MS + 60_000)


@pytest.mark.parametrize(
    "claims",
    [
        {"sub": None},
        {"sub": " "},
        {"sub": 7},
        {"sub": "\ud800"},
        {"exp": None},
        {"exp": "soon"},
        {"exp": True},
        {"exp": NOW_S},
        {"exp": 1 << 60},
        {"exp": float("nan")},
        {"exp": float("inf")},
        {"iat": NOW_S + 1},
        {"iat": NOW_S + 60},
        {"iat": "then"},
    ],
)
def test_inconsistent_claims_are_refused(claims: dict[str, Any]) -> None:
    with pytest.raises(BadToken) as bad:
        UnsecuredTokens().read(token(**claims), NOW_MS)
    assert bad.value.as_json() == '{"status":"invalid_token"}'


@pytest.mark.parametrize(
    "wrong",
    [
        *("", ".", "..", "...", "a.b."),
        token() + "signature",
        token({"alg": "HS256"}),
        token({"alg": "None"}),
        token({}),
        token([]),
        claiming("[" * 100_000),
        claiming('{"sub":"a","exp":1e999}'),
        claiming('{"sub":"a","exp":' + "9" * 5000 + "}"),
        token().replace(".", "-.", 1),
    ],
)
def test_malformed_or_signed_token_is_refused(wrong: str) -> None:
    with pytest.raises(BadToken):
        UnsecuredTokens().read(wrong, NOW_MS)


def test_truncated_token_is_refused() -> None:
    whole = token()
    for length in range(len(whole)):
        with pytest.raises(BadToken):
            UnsecuredTokens().read(whole[:length], NOW_MS)


def test_the_clock_skew_shifts_both_ends() -> None:
    lenient = UnsecuredTokens(clock_skew_ms=2000)
    assert lenient.read(token(exp=NOW_S - 1), NOW_MS).expires_ms == NOW_MS - 1000
    assert lenient.read(token(iat=NOW_S + 2), NOW_MS).user == "alice"
    with pytest.raises(BadToken):
        lenient.read(token(exp=NOW_S - 2), NOW_MS)
    with pytest.raises(BadToken):
        lenient.read(token(iat=NOW_S + 3), NOW_MS)


def test_token_without_all_required_scopes_is_refused() -> None:
    tokens = UnsecuredTokens(required_scope=("read", "write"))
    assert tokens.read(token(scope=["write", "more", "read"]), NOW_MS).user == "alice"
    assert UnsecuredTokens(required_scope=("read",)).read(token(scope=" read "), NOW_MS).user == "alice"
    for scope in (None, "", "read", "read write", ["read write"], ["read"], "readwrite", {"read": 1}):
        with pytest.raises(BadToken) as bad:
            tokens.read(token(scope=scope), NOW_MS)
        assert bad.value.as_json() == '{"status":"insufficient_scope", "scope":"[read, write]"}'


def test_names_of_claims_are_configurable() -> None:
    tokens = UnsecuredTokens(user_claim="who", scope_claim="may", required_scope=("x",))
    assert tokens.read(token(who="bob", may=["x"]), NOW_MS).user == "bob"
