"""Builds a client's security settings: TLS, SASL, both or neither.

Two ways to say it. In Python, by the names that aiokafka and kafka-python use:

    Producer("broker:9093", security_protocol="SASL_SSL", ssl_cafile="ca.pem",
             sasl_mechanism="SCRAM-SHA-256", sasl_plain_username="alice", sasl_plain_password="...")

In a file, by Kafka's property names (`security_of`):

    security.protocol=SASL_SSL
    ssl.truststore.location=ca.pem
    sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="...";

Secrets appear in no repr and in no text of an error.
"""

from __future__ import annotations

import inspect
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Unpack
from urllib.parse import unquote, urlsplit

from anabranch.clients.security import Security, SecurityArguments
from anabranch.protocol.suggestion import suggest

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def make_security(client: type | None = None, /, **given: Unpack[SecurityArguments]) -> Security | None:
    """Build the settings from a client's arguments; None without arguments.

    Args:
        client: The class that got them beside its own arguments, for the text of an error.
        **given: The arguments that are not the class's own.

    Raises:
        TypeError: No client has an argument of this name.
        ValueError: The arguments do not go together.
        OSError: A file cannot be read.
    """
    if not given:
        return None
    refuse_unknown_arguments(client, given)
    if "security" in given:
        if len(given) > 1:
            raise ValueError(
                f"security excludes other settings; leave out {', '.join(sorted(given.keys() - {'security'}))}"
            )
        return given["security"]
    protocol = _protocol("security_protocol", given.get("security_protocol", "PLAINTEXT"))
    unused = [
        name
        for name in given
        if (name.startswith("ssl_") and not protocol.endswith("SSL"))
        or (name.startswith("sasl_") and not protocol.startswith("SASL_"))
    ]
    if unused:
        raise ValueError(f"{', '.join(unused)}: not used with security_protocol={protocol}")
    context = _context(given) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL_"):
        return Security(context)
    mechanism = _mechanism("sasl_mechanism", given.get("sasl_mechanism", "PLAIN"))
    if mechanism == "OAUTHBEARER":
        provider = given.get("sasl_oauth_token_provider")
        if provider is None:
            raise ValueError("sasl_oauth_token_provider: OAUTHBEARER needs a function that returns a token")
        return Security(context, mechanism, token=provider)
    user, password = given.get("sasl_plain_username", ""), given.get("sasl_plain_password", "")
    if not user or not password:
        raise ValueError(f"sasl_plain_username and sasl_plain_password: {mechanism} needs both")
    by_token = given.get("sasl_delegation_token", False)
    if by_token and not mechanism.startswith("SCRAM"):
        raise ValueError(f"sasl_delegation_token: goes with SCRAM, not with {mechanism}")
    return Security(context, mechanism, user, password, by_token=by_token)


def refuse_unknown_arguments(client: type | None, given: Mapping[str, object]) -> None:
    """Raise the TypeError of Python for unknown arguments."""
    for name in given:
        if name not in SecurityArguments.__annotations__:
            own = [] if client is None else list(inspect.signature(client).parameters)[:-1]
            owner = "make_security" if client is None else client.__name__
            hint = suggest(name, [*own, *SecurityArguments.__annotations__])
            raise TypeError(f"{owner}() got an unexpected keyword argument {name!r}; {hint}")


def _context(given: SecurityArguments) -> ssl.SSLContext:
    if "ssl_context" in given:
        return given["ssl_context"]
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=given.get("ssl_cafile"))
    context.check_hostname = given.get("ssl_check_hostname", True)
    if "ssl_certfile" in given:
        password = given.get("ssl_password", "")
        context.load_cert_chain(given["ssl_certfile"], given.get("ssl_keyfile"), password=lambda: password)
    return context


def security_of(properties: Mapping[str, str]) -> Security:
    """Build the settings from Kafka's client properties; those without the prefix security, sasl or ssl are ignored.

    Raises ValueError, OSError.
    """

    def get(name: str) -> str:
        return properties.get(name, _DEFAULTS.get(name, "")).strip()

    return security_by(get, get("security.protocol") or "PLAINTEXT", get("sasl.mechanism"), get("sasl.jaas.config"))


def security_by(get: Callable[[str], str], protocol: str, mechanism: str, jaas: str) -> Security:
    """Build the settings from their parts; `get` returns TLS properties. Raises ValueError, OSError."""
    from anabranch.clients.jaas import login_module
    from anabranch.clients.tls import TlsSettings, client_context
    from anabranch.clients.unsecured_token import unsecured_token

    protocol = _protocol("security.protocol", protocol)
    context = client_context(TlsSettings.read(get)) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL_"):
        return Security(context)
    from anabranch.clients import sasl  # noqa: F401 - here, so that no login imports it while files are short

    mechanism = _mechanism("sasl.mechanism", mechanism)
    options = login_module(jaas).options if jaas else {}
    url = get("sasl.oauthbearer.token.endpoint.url")
    if mechanism == "OAUTHBEARER" and urlsplit(url).scheme in ("http", "https"):
        from anabranch.clients.token_endpoint import TokenEndpoint

        endpoint = TokenEndpoint(
            url, options.get("clientId", ""), options.get("clientSecret", ""), options.get("scope", "")
        )
        return Security(context, mechanism, token=endpoint, token_waits=True)
    if mechanism == "OAUTHBEARER" and url:
        return Security(context, mechanism, token=_token_in(url))
    if mechanism == "OAUTHBEARER":
        user = options.get("unsecuredLoginStringClaim_sub", "")
        if not user:
            raise ValueError(
                "OAUTHBEARER needs a token: sasl.oauthbearer.token.endpoint.url, or for unsigned ones "
                "unsecuredLoginStringClaim_sub in sasl.jaas.config"
            )
        return Security(context, mechanism, token=lambda: unsecured_token(options))
    user, password = options.get("username", ""), options.get("password", "")
    if not user or not password:
        raise ValueError(f"sasl.jaas.config: {mechanism} needs a module with username and password")
    return Security(context, mechanism, user, password, by_token=options.get("tokenauth", "").lower() == "true")


def _token_in(url: str) -> Callable[[], str]:
    """Return a function that reads a token from a file at each call: the file is rewritten before it expires."""
    parts = urlsplit(url)
    if parts.scheme != "file":
        raise ValueError(
            f"sasl.oauthbearer.token.endpoint.url={url}: write file:///..., https://... or http://...; in Python, "
            "sasl_oauth_token_provider may get a token from anywhere"
        )
    return lambda: Path(unquote(parts.path)).read_text().strip()


def _protocol(what: str, text: str) -> str:
    protocol = text.upper()
    if protocol not in PROTOCOLS:
        raise ValueError(f"{what} is one of {', '.join(PROTOCOLS)}, not {text!r}")
    return protocol


def _mechanism(what: str, text: str) -> str:
    mechanism = text.upper()
    if mechanism not in MECHANISMS:
        hint = "; Kerberos is not supported" if mechanism in ("GSSAPI", "") else ""
        raise ValueError(f"{what} is one of {', '.join(MECHANISMS)}, not {text!r}{hint}")
    return mechanism


_DEFAULTS: Final[dict[str, str]] = {
    **dict.fromkeys(("ssl.keystore.type", "ssl.truststore.type"), "JKS"),
    "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
    "ssl.endpoint.identification.algorithm": "https",
}
