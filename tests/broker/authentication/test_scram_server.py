"""SCRAM: RFC 7677's example, another project's client, and altered and replayed messages."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from aiokafka.conn import ScramAuthenticator

from anabranch.broker.authentication.sasl_exchange import SaslProtocolError, SaslRefused, Step
from anabranch.broker.authentication.scram_server import DIGESTS, Credential, ScramServer
from anabranch.broker.credentials.scram_store import Upsertion, credential

NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
ANSWER = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
VERIFIER = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def stored(password: str = "pencil", mechanism: str = "SCRAM-SHA-256", iterations: int = 4096) -> str:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac(DIGESTS[mechanism], password.encode(), salt, iterations)
    return credential(Upsertion("user", 1 if mechanism == "SCRAM-SHA-256" else 2, iterations, salt, salted))


KNOWN = Credential.parse(stored())


def server(name: str = "user", known: Credential = KNOWN, nonce: str = NONCE) -> ScramServer:
    return ScramServer("SCRAM-SHA-256", {name: known}.get, nonce)


def proof(first_bare: str, answer: bytes, final_without_proof: str, password: str = "pencil") -> bytes:
    """The final message of a client that knows the password."""
    parts = dict(part.split("=", 1) for part in answer.decode().split(","))
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(parts["s"]), int(parts["i"]))
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signed = f"{first_bare},{answer.decode()},{final_without_proof}".encode()
    signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
    mixed = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return final_without_proof.encode() + b",p=" + base64.b64encode(mixed)


def test_exchange_of_rfc_7677_succeeds() -> None:
    scram = server()
    assert scram.step(FIRST, 0) == Step(ANSWER)
    assert scram.step(FINAL, 0) == Step(VERIFIER, "user")


@pytest.mark.parametrize("mechanism", DIGESTS)
def test_exchange_with_aiokafkas_client_succeeds(mechanism: str) -> None:
    known = Credential.parse(stored("s3cret, =", mechanism, 8192))
    client = ScramAuthenticator(
        loop=None, sasl_plain_username="a=b,c", sasl_plain_password="s3cret, =", sasl_mechanism=mechanism
    )
    scram = ScramServer(mechanism, {"a=b,c": known}.get, "f" * 26)
    steps, step = client.authenticator_scram(), None
    first, _ = next(steps)
    step = scram.step(first, 0)
    final, _ = steps.send(step.answer)
    step = scram.step(final, 0)
    assert step.user == "a=b,c"
    with pytest.raises(StopIteration):
        steps.send(step.answer)


def test_each_altered_byte_of_the_final_message_is_refused() -> None:
    for place in range(len(FINAL)):
        for flipped in (1, 0x20, 0x80):
            scram = server()
            scram.step(FIRST, 0)
            altered = bytearray(FINAL)
            altered[place] ^= flipped
            with pytest.raises((SaslRefused, SaslProtocolError)):
                scram.step(bytes(altered), 0)
            with pytest.raises(SaslProtocolError):
                scram.step(FINAL, 0)


def test_replayed_login_is_refused_on_another_connection() -> None:
    scram = server(nonce="another")
    scram.step(FIRST, 0)
    with pytest.raises(SaslRefused, match="Invalid client nonce"):
        scram.step(FINAL, 0)


def test_proof_over_another_nonce_is_refused_despite_the_right_password() -> None:
    """CVE-2024-56128: the proof alone does not say that this server's nonce was signed."""
    scram = server()
    answer = scram.step(FIRST, 0).answer
    with pytest.raises(SaslRefused, match="Invalid client nonce"):
        scram.step(proof("n=user,r=rOprNGfwEbeRWgbNEkqO", answer, "c=biws,r=rOprNGfwEbeRWgbNEkqO"), 0)


def test_nonce_with_a_prefix_is_accepted_as_librdkafka_before_2_6_1_sends_it() -> None:
    scram = server()
    answer = scram.step(FIRST, 0).answer
    twice = "c=biws,r=" + "rOprNGfwEbeRWgbNEkqO" + answer.decode()[2:].partition(",")[0]
    assert scram.step(proof("n=user,r=rOprNGfwEbeRWgbNEkqO", answer, twice), 0).user == "user"


def test_extensions_of_the_first_message_are_signed_and_reserved_ones_refused() -> None:
    scram = server()
    answer = scram.step(b"n,,m=x,n=user,r=abc,ext=1=2,tokenauth=no", 0).answer
    final = proof("n=user,r=abc,ext=1=2,tokenauth=no", answer, f"c=biws,r=abc{NONCE}")
    assert scram.step(final, 0).user == "user"


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"y,,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,n=user",
        b"n,,n=user,r=",
        b"n,,n=us=er,r=abc",
        b"n,,n=nobody,r=abc",
        "n,,n=usér,r=abc".encode(),
        b"n,,n=user,r=abc\n",
        b"n,,n=user,r=abc,tokenauth=TRUE",
        b"n,,n=\xff,r=abc",
        b"n,,n=" + b"=2C" * 150_000,
        FINAL,
    ],
)
def test_malformed_first_message_ends_the_exchange(first: bytes) -> None:
    scram = server()
    with pytest.raises(SaslRefused) as refused:
        scram.step(first, 0)
    assert refused.value.client_message is None
    with pytest.raises(SaslProtocolError):
        scram.step(FIRST, 0)


def test_authorization_id_of_another_user_is_refused_with_a_message() -> None:
    assert server().step(b"n,a=user,n=user,r=abc", 0).user is None
    with pytest.raises(SaslRefused) as refused:
        server().step(b"n,a=root,n=user,r=abc", 0)
    assert refused.value.client_message is not None
    assert "authorization id" in refused.value.client_message


def test_proof_of_wrong_length_ends_the_exchange() -> None:
    scram = server()
    scram.step(FIRST, 0)
    with pytest.raises(SaslProtocolError):
        scram.step(FINAL[: FINAL.index(b",p=")] + b",p=AAAA", 0)


def test_final_message_that_is_not_utf_8_ends_the_exchange() -> None:
    scram = server()
    scram.step(FIRST, 0)
    with pytest.raises(SaslRefused):
        scram.step(b"\xff", 0)
    with pytest.raises(SaslProtocolError):
        scram.step(FINAL, 0)


def test_credential_with_too_few_iterations_is_refused() -> None:
    with pytest.raises(SaslRefused, match="4096"):
        server(known=Credential.parse(stored(iterations=4095))).step(FIRST, 0)


@pytest.mark.parametrize(
    "text",
    [
        *("", "salt", "salt=a,stored_key=b", "iterations=4096"),
        stored() + ",more=1",
        stored() + ",iterations=4096",
        stored().replace("4096", "many"),
        stored().replace("stored_key=", "stored_key=!"),
    ],
)
def test_malformed_credential_is_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(ValueError, match=r"^Credentials not valid$"):
        Credential.parse(text)


def test_repr_of_credential_shows_no_keys() -> None:
    assert repr(KNOWN) == "Credential(iterations=4096)"
    assert str(KNOWN) == "Credential(iterations=4096)"
