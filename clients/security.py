"""A client's security settings: TLS, SASL, both or neither. `clients.security_config` builds them."""

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
    """Security of all connections of a client."""

    tls: ssl.SSLContext | None = None
    """None: connections are not encrypted."""
    mechanism: str = ""
    """The SASL mechanism; empty: no login."""
    user: str = ""
    password: str = field(default="", repr=False)
    by_token: bool = False
    """Whether the user is the id of a delegation token, and the password its secret in base64."""
    token: Callable[[], str] | None = field(default=None, repr=False)
    """Returns a token for each OAUTHBEARER login."""
    token_waits: bool = False
    """Whether `token` blocks, and needs a thread."""

    def login(self) -> Login:
        """Create a login."""
        import secrets

        from anabranch.clients.sasl import OAuthBearerLogin, PlainLogin, ScramLogin

        if self.mechanism == "OAUTHBEARER":
            assert self.token is not None, "checked by the constructor"
            return OAuthBearerLogin(self.token())
        if self.mechanism == "PLAIN":
            return PlainLogin(self.user, self.password)
        return ScramLogin(self.mechanism, self.user, self.password, secrets.token_urlsafe(24), by_token=self.by_token)


OPEN: Final = Security()
"""Neither TLS nor a login."""


class SecurityArguments(TypedDict, total=False):
    """The security arguments of every client."""

    security: Security
    """All of them as one value, in place of the others."""
    security_protocol: str
    """PLAINTEXT (the default), SSL, SASL_PLAINTEXT or SASL_SSL."""
    ssl_context: ssl.SSLContext
    """All TLS settings, in place of the other `ssl_` arguments."""
    ssl_cafile: str
    """The trusted authorities, as PEM; without it, the system's."""
    ssl_certfile: str
    """The client's certificate, as PEM."""
    ssl_keyfile: str
    """Its key, if it is in another file."""
    ssl_password: str
    """The key's password."""
    ssl_check_hostname: bool
    """Whether the broker's certificate must name its host; True by default."""
    sasl_mechanism: str
    """PLAIN (the default), SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER."""
    sasl_plain_username: str
    """The user, for all mechanisms but OAUTHBEARER."""
    sasl_plain_password: str
    """The user's password."""
    sasl_delegation_token: bool
    """Whether the user is the id of a delegation token, and the password its secret in base64; with SCRAM."""
    sasl_oauth_token_provider: Callable[[], str]
    """Returns a token, called whenever one is needed."""
