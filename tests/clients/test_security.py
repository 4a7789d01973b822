"""One object has the security of all connections, makes their logins, and shows no secret."""

from __future__ import annotations

from anabranch.clients.sasl import OAuthBearerLogin, PlainLogin, ScramLogin
from anabranch.clients.security import Security


def test_each_mechanism_has_its_login_and_each_connection_a_new_one() -> None:
    assert isinstance(Security(None, "PLAIN", "alice", "secret").login(), PlainLogin)
    scram = Security(None, "SCRAM-SHA-256", "alice", "secret")
    assert isinstance(scram.login(), ScramLogin)
    assert scram.login().first() != scram.login().first()  # a nonce is used once
    tokens = iter(("a", "b"))
    bearer = Security(None, "OAUTHBEARER", token=lambda: next(tokens))
    assert isinstance(bearer.login(), OAuthBearerLogin)
    assert bearer.login().first() == b"n,,\x01auth=Bearer b\x01\x01"


def test_repr_of_security_hides_password() -> None:
    assert "secret" not in repr(Security(None, "PLAIN", "alice", "secret"))
