"""How a client is let in: by TLS, by SASL, by both or by neither. Users say it by `clients.security_config`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Final, TypedDict

from anabranch.protocol.values import value

if TYPE_CHECKING:
    import ssl

    from anabranch.clients.sasl import Login


@value
class Security:
    """How connections are made safe; one for all connections of a client."""

    tls: ssl.SSLContext | None = None
    """None: connections are not encrypted."""
    mechanism: str = ""
    """The SASL mechanism; empty: no login."""
    user: str = ""
    password: str = field(default="", repr=False)
    by_token: bool = False
    """Whether the user is the id of a delegation token, and the password its secret in base64."""
    token: Callable[[], str] | None = field(default=None, repr=False)
    """Gives a token for each login by OAUTHBEARER."""
    token_waits: bool = False
    """Whether that takes a while, and so a thread."""

    def login(self) -> Login:
        """A new login."""
        import secrets

        from anabranch.clients.sasl import OAuthBearerLogin, PlainLogin, ScramLogin

        if self.mechanism == "OAUTHBEARER":
            assert self.token is not None, "checked when it was made"
            return OAuthBearerLogin(self.token())
        if self.mechanism == "PLAIN":
            return PlainLogin(self.user, self.password)
        return ScramLogin(self.mechanism, self.user, self.password, secrets.token_urlsafe(24), by_token=self.by_token)


OPEN: Final = Security()
"""Neither TLS nor a login."""


class SecurityArguments(TypedDict, total=False):
    """The arguments by which every client is told how it is let in."""

    security: Security
    """Everything at once, in place of the others."""
    security_protocol: str
    """PLAINTEXT (the default), SSL, SASL_PLAINTEXT or SASL_SSL."""
    ssl_context: ssl.SSLContext
    """Everything about TLS, in place of the other `ssl_` arguments."""
    ssl_cafile: str
    """The authorities to trust, as PEM; without it, the system's."""
    ssl_certfile: str
    """The client's certificate, as PEM."""
    ssl_keyfile: str
    """Its key, if it is in another file."""
    ssl_password: str
    """The key's password."""
    ssl_check_hostname: bool
    """Whether the broker's certificate must name the host that is connected to; True by default."""
    sasl_mechanism: str
    """PLAIN (the default), SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER."""
    sasl_plain_username: str
    """The user, for all mechanisms but OAUTHBEARER."""
    sasl_plain_password: str
    """The user's password."""
    sasl_delegation_token: bool
    """Whether the user is the id of a delegation token, and the password its secret in base64; with SCRAM."""
    sasl_oauth_token_provider: Callable[[], str]
    """Returns a token, whenever one is needed."""
