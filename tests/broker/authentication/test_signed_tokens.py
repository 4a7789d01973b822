"""Signed tokens: accepted keys, required claims, and refusals."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from typing import Any

import pytest

from anabranch.broker.authentication.oauthbearer import BadToken, Bearer
from anabranch.broker.authentication.signed_tokens import SignedTokens, keys_in
from tests.secured.issuer import NAME, Issuer, jwks, part

NOW_MS = 1_700_000_000_000
NOW_S = NOW_MS // 1000
ISSUER = Issuer()
OTHER = Issuer(key_id="other")


def reading(*issuers: Issuer, asked: list[str] | None = None, **more: Any) -> SignedTokens:
    keys = keys_in(jwks(*(issuers or (ISSUER,))))
    return SignedTokens(keys=lambda: keys, on_unknown_key=(asked if asked is not None else []).append, **more)


@pytest.mark.parametrize("algorithm", ["ES256", "EdDSA", "RS256", "PS256"])
@pytest.mark.parametrize("key_id", ["one", None])
def test_signed_token_within_its_lifetime_is_accepted(algorithm: str, key_id: str | None) -> None:
    issuer = Issuer(algorithm, key_id)
    assert reading(issuer, OTHER).read(issuer.token(NOW_S), NOW_MS) == Bearer("alice", NOW_MS + 60_000)


@pytest.mark.parametrize(
    ("settings", "claims"),
    [
        ({}, {"exp": None}),
        ({}, {"iat": None}),
        ({}, {"sub": None}),
        ({}, {"sub": " "}),
        ({}, {"sub": 7}),
        ({}, {"sub": "a\nb"}),
        ({}, {"exp": NOW_S - 30}),
        ({}, {"exp": "tomorrow"}),
        ({}, {"exp": True}),
        ({}, {"exp": 1e300}),
        ({}, {"nbf": NOW_S + 31}),
        ({}, {"aud": "us"}),
        ({"audiences": ("us",)}, {}),
        ({"audiences": ("us",)}, {"aud": ["them"]}),
        ({"issuer": NAME}, {}),
        ({"issuer": NAME}, {"iss": NAME + "/"}),
        ({}, {"scope": ["a", "a"]}),
        ({}, {"iat": NOW_S + 61}),
        ({}, {"nbf": NOW_S + 61, "iat": NOW_S}),
        ({"user_claim": "email"}, {}),
    ],
)
def test_token_with_invalid_claims_is_refused(settings: dict[str, Any], claims: dict[str, Any]) -> None:
    with pytest.raises(BadToken):
        reading(**settings).read(ISSUER.token(NOW_S, **claims), NOW_MS)


@pytest.mark.parametrize(
    ("settings", "claims"),
    [
        ({}, {"exp": NOW_S - 29, "iat": NOW_S - 60}),
        ({}, {"nbf": NOW_S + 30}),
        ({"audiences": ("we", "us")}, {"aud": ["them", "us"]}),
        ({"issuer": NAME}, {"iss": NAME}),
        ({}, {"scope": ["a", "b"]}),
        ({}, {"scope": 7}),
        ({"user_claim": "email"}, {"email": "alice"}),
    ],
)
def test_token_allowed_by_settings_is_accepted(settings: dict[str, Any], claims: dict[str, Any]) -> None:
    assert reading(**settings).read(ISSUER.token(NOW_S, **claims), NOW_MS).user == "alice"


def forged() -> dict[str, str]:
    """Tokens of alice without a valid signature."""
    header, body, signature = ISSUER.token(NOW_S).split(".")
    claims = part({"sub": "admin", "iat": NOW_S, "exp": NOW_S + 60})
    public = json.dumps(ISSUER.public).encode()
    by_secret = part({"alg": "HS256", "kid": "one"}) + "." + claims
    code = hmac.digest(public, by_secret.encode(), hashlib.sha256)
    return {
        "none": f"{part({'alg': 'none'})}.{claims}.",
        "none with a signature": f"{part({'alg': 'none', 'kid': 'one'})}.{claims}.{signature}",
        "None": f"{part({'alg': 'None'})}.{claims}.",
        "the public key as a secret": f"{by_secret}.{part(code)}",
        "other claims": f"{header}.{claims}.{signature}",
        "truncated": f"{header}.{body}.{signature[:20]}",
        "without a signature": f"{header}.{body}.",
        "two parts": f"{header}.{body}",
        "nothing": "",
        "dots": "..",
        "a header that is a list": f"{part([1])}.{body}.{signature}",
        "deep": f"{part(b'[' * 100_000)}.{body}.{signature}",
        "a key of another": Issuer(key_id="one").token(NOW_S),
        "a key in the header": Issuer(key_id=None).token(NOW_S, headers={"jwk": Issuer().public}),
        "critical": ISSUER.token(NOW_S, headers={"crit": ["exp"], "exp": 1}),
        "endless": "a" * 70_000,
    }


@pytest.mark.parametrize("how", forged())
def test_forged_token_is_refused(how: str) -> None:
    with pytest.raises(BadToken) as refused:
        reading().read(forged()[how], NOW_MS)
    assert refused.value.as_json() == '{"status":"invalid_token"}'
    assert "admin" not in str(refused.value)


def test_unknown_key_id_requests_a_refresh() -> None:
    asked: list[str] = []
    with pytest.raises(BadToken):
        reading(asked=asked).read(OTHER.token(NOW_S), NOW_MS)
    assert asked == ["other"]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"keys": []}', '{"keys": [{}]}', '{"keys": [{"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"}]}'],
)
def test_a_document_without_a_public_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="JWKS"):
        keys_in(text)


def test_long_invalid_token_is_refused_quickly() -> None:
    """Anybody may send tokens: the longest one must be cheap."""
    begun_s = time.process_time()
    for _ in range(20):
        with pytest.raises(BadToken):
            reading().read("a" * 60_000 + "." + "b" * 1000 + ".c", NOW_MS)
    assert time.process_time() - begun_s < 10
