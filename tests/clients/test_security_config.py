"""Security settings in Python or Kafka's properties have one meaning, or are refused."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from anabranch import Admin, Consumer, Producer
from anabranch.clients.sasl import OAuthBearerLogin, PlainLogin, ScramLogin
from anabranch.clients.security import Security
from anabranch.clients.security_config import make_security, security_of
from anabranch.testing.blocking_admin import BlockingAdmin
from tests.secured.certificates import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE, files

PASSWORD = {"sasl_plain_username": "alice", "sasl_plain_password": "secret"}


def test_no_arguments_make_no_security() -> None:
    assert make_security() is None
    assert make_security(security_protocol="PLAINTEXT") == Security()


def test_arguments_make_tls_context_and_login() -> None:
    made = make_security(
        security_protocol="SASL_SSL", ssl_cafile=str(files().ca), sasl_mechanism="SCRAM-SHA-512", **PASSWORD
    )
    assert made is not None and made.tls is not None and made.tls.check_hostname
    assert isinstance(made.login(), ScramLogin)
    context = ssl.create_default_context()
    made = make_security(security_protocol="SSL", ssl_context=context)
    assert made == Security(context)
    made = make_security(
        security_protocol="SASL_PLAINTEXT", sasl_mechanism="oauthbearer", sasl_oauth_token_provider=lambda: "a.b."
    )
    assert made is not None and isinstance(made.login(), OAuthBearerLogin)
    assert made.login().first() == b"n,,\x01auth=Bearer a.b.\x01\x01"
    whole = Security(None, "PLAIN", "alice", "secret")
    assert make_security(security=whole) is whole
    assert isinstance(whole.login(), PlainLogin)
    assert "secret" not in repr(whole)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"security_protocol": "TLS"}, "security_protocol is one of PLAINTEXT, SSL"),
        ({"ssl_cafile": "x"}, "ssl_cafile: not used with security_protocol=PLAINTEXT"),
        ({"security_protocol": "SSL", **PASSWORD}, "sasl_plain_username, sasl_plain_password: not used"),
        ({"security_protocol": "SASL_PLAINTEXT"}, "PLAIN needs both"),
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}, "Kerberos is not supported"),
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}, "sasl_oauth_token_provider"),
        ({"security": Security(), "ssl_cafile": "x"}, "leave out ssl_cafile"),
    ],
)
def test_contradictory_arguments_are_refused(given: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make_security(**given)
    with pytest.raises(ValueError, match=says):
        Admin("127.0.0.1:9092", **given)


def test_kafka_properties_make_the_same_security() -> None:
    made = security_of(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": f'{SCRAM_MODULE} required username="alice" password="secret";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(files().ca),
            "ssl.endpoint.identification.algorithm": "",
            "bootstrap.servers": "ignored",
        }
    )
    assert (made.mechanism, made.user, made.password) == ("SCRAM-SHA-256", "alice", "secret")
    assert made.tls is not None and not made.tls.check_hostname
    assert security_of({}) == Security()
    token = security_of(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f'{OAUTH_MODULE} required unsecuredLoginStringClaim_sub="alice";',
        }
    )
    assert isinstance(token.login(), OAuthBearerLogin)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"security.protocol": "TLS"}, "security.protocol is one of"),
        ({"security.protocol": "SASL_SSL"}, "Kerberos is not supported"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "username and password"),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.jaas.config": f"{PLAIN_MODULE} required;",
            },
            "unsecuredLoginStringClaim_sub",
        ),
    ],
)
def test_insufficient_properties_are_refused(given: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        security_of(given)


@pytest.mark.parametrize(
    ("client", "given", "says"),
    [
        (
            Producer,
            {"lingerms": 3},
            r"Producer\(\) got an unexpected keyword argument 'lingerms'; did you mean linger_ms",
        ),
        (Producer, {"bootstrap_server": "a:1"}, "did you mean bootstrap_servers"),
        (Producer, {"ssl_cert": "x"}, "did you mean ssl_"),
        (partial(Consumer, "t"), {"groupid": "g"}, r"Consumer\(\) .* 'groupid'; did you mean group_id"),
        (Admin, {"foo": 1}, r"Admin\(\) .* 'foo'; there are bootstrap_servers, client_id"),
        (partial(BlockingAdmin, "a:1"), {"sasl_user": "x"}, r"Admin\(\) .* 'sasl_user'; did you mean"),
        (make_security, {"ssl_ca": "x"}, r"make_security\(\) .* 'ssl_ca'; did you mean ssl_cafile"),
    ],
)
def test_unknown_argument_is_refused_with_suggestion(
    client: Callable[..., Any], given: dict[str, Any], says: str
) -> None:
    with pytest.raises(TypeError, match=says):
        client(**given)
