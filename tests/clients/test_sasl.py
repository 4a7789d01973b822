"""The client's side of each mechanism: RFC 7677's example, the broker's state machines, and fake brokers."""

from __future__ import annotations

import hashlib

import pytest

from anabranch.broker.authentication.oauthbearer import BadToken, Bearer, OAuthBearerServer
from anabranch.broker.authentication.plain import PlainServer
from anabranch.broker.authentication.sasl_exchange import SaslRefused
from anabranch.broker.authentication.scram_server import Credential, ScramServer
from anabranch.broker.credentials.scram_store import Upsertion, credential
from anabranch.clients.sasl import DIGESTS, ITERATIONS_MAX, OAuthBearerLogin, PlainLogin, ScramLogin
from anabranch.protocol.errors import ErrorCode, KafkaError

CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
VERIFIER = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def login(password: str = "pencil") -> ScramLogin:
    return ScramLogin("SCRAM-SHA-256", "user", password, "rOprNGfwEbeRWgbNEkqO")


def test_rfc_7677_example() -> None:
    scram = login()
    assert scram.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert scram.step(CHALLENGE) == FINAL
    assert scram.step(VERIFIER) is None


@pytest.mark.parametrize("mechanism", DIGESTS)
def test_scram_succeeds_only_with_same_password(mechanism: str) -> None:
    number = list(DIGESTS).index(mechanism) + 1
    salted = hashlib.pbkdf2_hmac(DIGESTS[mechanism], "pä=,".encode(), b"salt", 4096)
    known = Credential.parse(credential(Upsertion("a=b,c", number, 4096, b"salt", salted)))
    for password in ("pä=,", "planted"):
        client = ScramLogin(mechanism, "a=b,c", password, "mine")
        server = ScramServer(mechanism, {"a=b,c": known}.get, "yours")
        final = client.step(server.step(client.first(), 0).answer)
        assert final is not None
        if password == "planted":
            with pytest.raises(SaslRefused):
                server.step(final, 0)
        else:
            last = server.step(final, 0)
            assert last.user == "a=b,c"
            assert client.step(last.answer) is None


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"\xff",
        b"e=other-error",
        CHALLENGE.replace(b"r=rO", b"r=xO"),
        b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        CHALLENGE.replace(b"4096", b"4095"),
        CHALLENGE.replace(b"4096", b"%d" % (ITERATIONS_MAX + 1)),
        CHALLENGE.replace(b"gQ==", b"gQ="),
        CHALLENGE.replace(b"4096", b"0"),
    ],
)
def test_invalid_challenge_gets_no_proof(challenge: bytes) -> None:
    with pytest.raises(KafkaError) as error:
        login("planted").step(challenge)
    assert error.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "planted" not in str(error.value)


@pytest.mark.parametrize("verifier", [b"", b"v=", VERIFIER[:-4], VERIFIER.lower(), b"e=invalid-proof"])
def test_wrong_server_signature_is_refused(verifier: bytes) -> None:
    scram = login()
    scram.step(CHALLENGE)
    with pytest.raises(KafkaError, match="signature"):
        scram.step(verifier)


def test_plain_login_succeeds() -> None:
    plain = PlainLogin("bób", "pässword")
    last = PlainServer({"bób": "pässword"}).step(plain.first(), 0)
    assert last.user == "bób"
    assert plain.step(last.answer) is None


def test_invalid_token_is_refused_after_client_acknowledges() -> None:
    def read(token: str, now_ms: int) -> Bearer:
        if token != "good.token.":
            raise BadToken("another one")
        return Bearer("alice", 1)

    assert OAuthBearerServer(read).step(OAuthBearerLogin("good.token.").first(), 0).user == "alice"
    assert OAuthBearerLogin("good.token.").step(b"") is None
    server, client = OAuthBearerServer(read), OAuthBearerLogin("bad")
    gives_up = client.step(server.step(client.first(), 0).answer)
    assert gives_up is not None
    with pytest.raises(SaslRefused, match="an invalid token"):
        server.step(gives_up, 0)


def test_repr_of_login_hides_secret() -> None:
    for one in (PlainLogin("u", "planted"), OAuthBearerLogin("planted"), login("planted")):
        assert "planted" not in repr(one) + str(one)
