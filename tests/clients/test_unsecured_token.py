"""Unsigned tokens are accepted by a broker that allows them."""

from __future__ import annotations

import pytest

from anabranch.broker.authentication.oauthbearer import BadToken, Bearer, OAuthBearerServer
from anabranch.broker.authentication.unsecured_tokens import UnsecuredTokens
from anabranch.clients.sasl import OAuthBearerLogin
from anabranch.clients.unsecured_token import unsecured_token


def test_module_options_become_claims() -> None:
    options = {
        "unsecuredLoginStringClaim_sub": "alice",
        "unsecuredLoginListClaim_scope": "|read|write",
        "unsecuredLoginNumberClaim_n": "1.5",
        "unsecuredLoginLifetimeSeconds": "60",
        "other": "x",
    }
    token = unsecured_token(options, now_s=1000)
    reader = UnsecuredTokens(required_scope=("write",))
    assert reader.read(token, 1_000_000) == Bearer("alice", 1_060_000)
    with pytest.raises(BadToken, match="expired"):
        reader.read(token, 1_060_000)


@pytest.mark.parametrize("user", ["a>b?c~d", "é", "CN=a,OU=b", "~~~~"])
def test_every_user_name_survives_token_exchange(user: str) -> None:
    token = unsecured_token({"unsecuredLoginStringClaim_sub": user}, now_s=1000)
    server = OAuthBearerServer(UnsecuredTokens().read)
    assert server.step(OAuthBearerLogin(token).first(), 1_000_000).user == user
