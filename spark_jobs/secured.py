"""The audit's security: Kafka's client properties, for the driver's own connections and for librdkafka's.

The properties are those of a file for `--command-config`, and of Spark's Kafka source with the prefix `kafka.`. A
property without an equivalent in librdkafka is refused, because executors would fail to log in when the driver
succeeds.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, Final

from anabranch.clients.security import Security
from anabranch.clients.security_config import security_of
from anabranch.spark_jobs.source_options import SECURED, Client

PEM: Final = "PEM"
_STRAIGHT: Final = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.key.password": "ssl.key.password",
    "ssl.cipher.suites": "ssl.cipher.suites",
}
"""Properties with another name in librdkafka, and the same text."""


def of(properties: Mapping[str, str]) -> Client:
    """Return the security properties of a file. Raises ValueError, OSError for invalid ones."""
    client = {name: value for name, value in properties.items() if name in SECURED}
    of_librdkafka(client)
    return client


def security(client: Client) -> Security | None:
    """Return the security of the driver's own connections. Raises ValueError, OSError."""
    return security_of(client) if client else None


def of_librdkafka(client: Client) -> dict[str, Any]:
    """Return the properties of a librdkafka client. Raises ValueError, OSError."""
    if not client:
        return {}
    found = security_of(client)
    settings: dict[str, Any] = {"security.protocol": client.get("security.protocol", "PLAINTEXT").upper()}
    if found.tls is not None:
        settings |= _tls(client)
    if found.mechanism == "OAUTHBEARER":
        assert found.token is not None, "checked by the constructor"
        token = found.token
        return {**settings, "sasl.mechanism": found.mechanism, "oauth_cb": lambda _: _with_end(token())}
    if found.by_token:
        raise ValueError("sasl.jaas.config: librdkafka, which reads the records, does not support delegation tokens")
    if found.mechanism:
        settings |= {
            "sasl.mechanism": found.mechanism,
            "sasl.username": found.user,
            "sasl.password": found.password,
        }
    return settings


def _tls(client: Client) -> dict[str, str]:
    settings = {name: client[kafkas] for kafkas, name in _STRAIGHT.items() if client.get(kafkas)}
    check = client.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    settings["ssl.endpoint.identification.algorithm"] = check or "none"
    if trusted := client.get("ssl.truststore.location"):
        if client.get("ssl.truststore.type", "").upper() != PEM:
            raise ValueError(
                f"ssl.truststore.location={trusted}: librdkafka, which reads the records, needs PEM: "
                "set ssl.truststore.type=PEM, and a PEM file"
            )
        settings["ssl.ca.location"] = trusted
    if kept := client.get("ssl.keystore.location"):
        if client.get("ssl.keystore.type", "").upper() == PEM:
            settings |= {"ssl.certificate.location": kept, "ssl.key.location": kept}
        else:
            settings |= {"ssl.keystore.location": kept, "ssl.keystore.password": client["ssl.keystore.password"]}
    return settings


def _with_end(token: str) -> tuple[str, float]:
    """Return a token and its expiry, in seconds since 1970: librdkafka requests another before."""
    try:
        body = token.split(".")[1]
        end = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))["exp"]
        return token, float(end)
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error) as error:
        raise ValueError("the token for OAUTHBEARER is not a JSON web token with an expiry time") from error
