"""The security of a listener: TLS, client certificates, SASL login, and the resulting principal.

It is built from the listener's properties when the node starts; invalid properties raise ConfigError then. `reload`
reads the key store again: new handshakes use the new certificate, and open connections stay unchanged.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import secrets
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from anabranch.broker.authentication.listener_properties import ListenerProperties
from anabranch.broker.authentication.oauthbearer import Bearer, OAuthBearerServer
from anabranch.broker.authentication.plain import PlainServer
from anabranch.broker.authentication.principals import NoRule, PrincipalRules
from anabranch.broker.authentication.sasl_authenticator import Answerer, AuthenticatedConnection, SaslAuthenticator
from anabranch.broker.authentication.scram_server import DIGESTS, ScramServer
from anabranch.broker.authentication.tls_handshakes import NOT_TLS, ReportingContext
from anabranch.broker.authentication.token_logins import token_login
from anabranch.broker.authentication.unsecured_tokens import UnsecuredTokens
from anabranch.broker.authorization.peer import ANONYMOUS, Peer
from anabranch.broker.config.config_def import ConfigError
from anabranch.broker.dispatch.request_context import AuthenticationFailed
from anabranch.clients.jaas import LoginModule, login_module
from anabranch.clients.security import Security
from anabranch.clients.security_config import security_by
from anabranch.clients.tls import TlsSettings, load_identity, server_context

if TYPE_CHECKING:
    from anabranch.broker.authentication.jwks import Jwks
    from anabranch.broker.authentication.sasl_exchange import Exchange
    from anabranch.broker.authentication.scram_credential_cache import ScramCredentials
    from anabranch.broker.config.broker_settings import BrokerSettings
    from anabranch.broker.config.listeners import Listener
    from anabranch.broker.credentials.delegation_tokens import Tokens
    from anabranch.broker.tasks.supervised_task import OnFailure

NONCE_BYTES: Final = 24
HANDSHAKE_S: Final = 30.0
"""The timeout of a TLS handshake: clients' default timeout for a connection (`socket.connection.setup.timeout.max.ms`).
A shorter `connections.max.idle.ms` ends it earlier.
"""
MECHANISMS: Final = ("PLAIN", *DIGESTS, "OAUTHBEARER")
VALIDATORS: Final = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
)
"""Kafka's callback handlers that validate signed tokens."""
_KINDS: Final = {"PLAIN": "PLAIN", "OAUTHBEARER": "OAUTHBEARER", **dict.fromkeys(DIGESTS, "SCRAM")}


class ListenerSecurity:
    """The security of one listener that is not PLAINTEXT."""

    def __init__(
        self,
        listener: Listener,
        given: Mapping[str, str],
        credentials: ScramCredentials,
        clock_ms: Callable[[], int],
        tokens: Tokens | None = None,
    ) -> None:
        """`clock_ms` returns the wall-clock time. Raises ConfigError."""
        self._properties = properties = ListenerProperties(listener, given)
        self._clock_ms = clock_ms
        self._credentials = credentials
        self._tokens = tokens
        self.tls: ReportingContext | None = None
        self.mechanisms: dict[str, Callable[[], Exchange]] = {}
        """Mechanism -> factory of its exchanges."""
        self.failure_delay_s = int(properties.get("connection.failed.authentication.delay.ms")) / 1000
        self.receive_bytes_max = int(properties.get("sasl.server.max.receive.size"))
        """The largest frame that a connection may send before it is authenticated."""
        self._rules: PrincipalRules | None = None
        self._name_of: Callable[[bytes], str] | None = None
        """Returns the distinguished name of a client certificate (DER)."""
        self._key_sets: list[Jwks] = []
        if listener.tls:
            with _errors_of_listener(listener):
                self.tls = server_context(TlsSettings.read(properties.get), properties.client_auth, ReportingContext)
                if properties.client_auth != "none":
                    self._name_of = _reader_of_names()
            self._rules = PrincipalRules(properties.get("ssl.principal.mapping.rules"))
        if listener.sasl:
            for mechanism in properties.get("sasl.enabled.mechanisms").split(","):
                with _errors_of_listener(listener):
                    self.mechanisms[mechanism] = self._exchanges(mechanism)

    async def start(self, died: OnFailure) -> None:
        """Load the key sets for signed tokens. Raises ConfigError."""
        for one in self._key_sets:
            with _errors_of_listener(self._properties.listener):
                await one.start(died)

    async def stop(self) -> None:
        """Stop the key sets' periodic reads."""
        for one in self._key_sets:
            await one.stop()

    def make_authenticator(
        self, connection: AuthenticatedConnection, answerer: Callable[[], Answerer]
    ) -> SaslAuthenticator:
        """Create the authenticator of a new connection; `answerer` handles requests after the login."""
        return SaslAuthenticator(self, connection, answerer, self._clock_ms)

    async def begin_tls(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        protocol: asyncio.BaseProtocol,
        peer: Peer,
        early: bytes = b"",
    ) -> tuple[asyncio.Transport, Peer]:
        """Run the TLS handshake of a new connection, and derive the peer's principal from its certificate.

        `early` holds the bytes that were received before the handshake. Raises AuthenticationFailed.
        """
        assert self.tls is not None, "only listeners with TLS shake hands"
        try:
            secured = await tls_handshake(self.tls, loop, transport, protocol, early)
            certificate = secured.get_extra_info("ssl_object").getpeercert(binary_form=True)
            return secured, dataclasses.replace(peer, principal=self.principal_of(certificate))
        except (HandshakeFailed, NoRule) as error:
            raise AuthenticationFailed(f"no TLS at {peer.listener}: {error}") from None

    @property
    def listener(self) -> Listener:
        """The listener that these settings secure."""
        return self._properties.listener

    def check(self, given: Mapping[str, str]) -> None:
        """Raise ConfigError if `reload` cannot read the key store."""
        properties = ListenerProperties(self.listener, given)
        with _errors_of_listener(properties.listener):
            server_context(TlsSettings.read(properties.get), "none", ReportingContext)

    def reload(self, given: Mapping[str, str], to_brokers: Security | None = None) -> None:
        """Read the key store again with these properties. Raises ConfigError, and keeps the previous key store.

        `to_brokers`: the security of connections to this listener of other brokers, which show the same certificate.
        """
        assert self.tls is not None, "only listeners with TLS have a key store"
        properties = ListenerProperties(self._properties.listener, given)
        with _errors_of_listener(properties.listener):
            settings = TlsSettings.read(properties.get)
            load_identity(self.tls, settings)
            if to_brokers is not None and to_brokers.tls is not None:
                load_identity(to_brokers.tls, settings)
        self._properties = properties

    def principal_of(self, certificate: bytes | None) -> str:
        """Return the principal of a certificate (DER). Raises NoRule."""
        if certificate is None or self._rules is None or self._name_of is None:
            return ANONYMOUS
        return f"User:{self._rules.user(self._name_of(certificate))}"

    def lifetime_ms(self, mechanism: str, expires_ms: int | None, now_ms: int) -> int | None:
        """Return how long a login stays valid; None: without limit (KIP-368)."""
        longest = int(self._properties.of_mechanism("connections.max.reauth.ms", mechanism))
        ends = [longest] if longest > 0 else []
        if expires_ms is not None:
            ends.append(expires_ms - now_ms)
        return max(0, min(ends)) if ends else None

    def _exchanges(self, mechanism: str) -> Callable[[], Exchange]:
        if mechanism not in MECHANISMS:
            hint = ": Kerberos is not supported" if mechanism == "GSSAPI" else ""
            raise ValueError(f"sasl.enabled.mechanisms={mechanism}{hint}; write some of {', '.join(MECHANISMS)}")
        if mechanism in DIGESTS:

            def scram() -> Exchange:
                nonce = secrets.token_urlsafe(NONCE_BYTES)
                token_of = None if self._tokens is None else partial(token_login, self._tokens, mechanism)
                return ScramServer(mechanism, partial(self._credentials.of, mechanism), nonce, token_of)

            return scram
        module = _module(mechanism, self._properties.jaas(mechanism))
        if mechanism == "PLAIN":
            return lambda: PlainServer(module.passwords)
        url = self._properties.of_mechanism("sasl.oauthbearer.jwks.endpoint.url", mechanism)
        handler = self._properties.of_mechanism("sasl.server.callback.handler.class", mechanism)
        if handler and handler not in VALIDATORS:
            raise ValueError(f"sasl.server.callback.handler.class={handler}: only {VALIDATORS[0]} is supported")
        if handler and not url:
            raise ValueError("sasl.oauthbearer.jwks.endpoint.url is missing: it is the URL of the token keys")
        read = self._signed_tokens(url, mechanism) if url else _unsecured_tokens(module.options).read
        return lambda: OAuthBearerServer(read)

    def _signed_tokens(self, url: str, mechanism: str) -> Callable[[str, int], Bearer]:
        """Return the reader of tokens that are signed with the keys at a URL. Raises ValueError, OSError."""
        try:
            from anabranch.broker.authentication.jwks import Jwks
            from anabranch.broker.authentication.signed_tokens import SignedTokens
        except ImportError:
            raise ValueError("signed tokens need `pip install anabranch[security]`") from None

        def get(name: str) -> str:
            return self._properties.of_mechanism(f"sasl.oauthbearer.{name}", mechanism)

        jwks = Jwks(url, int(get("jwks.endpoint.refresh.ms")))
        self._key_sets.append(jwks)
        return SignedTokens(
            keys=lambda: jwks.keys,
            on_unknown_key=jwks.request_refresh,
            issuer=get("expected.issuer"),
            audiences=tuple(one.strip() for one in get("expected.audience").split(",") if one.strip()),
            user_claim=get("sub.claim.name"),
            scope_claim=get("scope.claim.name"),
            clock_skew_ms=int(get("clock.skew.seconds")) * 1000,
        ).read


class HandshakeFailed(Exception):
    """A TLS handshake that failed, with its reason."""


async def tls_handshake(
    tls: ReportingContext,
    loop: asyncio.AbstractEventLoop,
    transport: asyncio.Transport,
    protocol: asyncio.BaseProtocol,
    early: bytes,
) -> asyncio.Transport:
    """Run the server side of a TLS handshake; `early` holds the bytes received before. Raises HandshakeFailed."""
    with tls.telling(loop, transport, early) as failures:
        try:
            secured = await loop.start_tls(
                transport, protocol, tls, server_side=True, ssl_handshake_timeout=HANDSHAKE_S
            )
            if secured is None or secured.get_extra_info("ssl_object") is None:
                raise ConnectionResetError
        except OSError as error:
            raise HandshakeFailed(_reason(*failures, error)) from None
    return secured


def _reason(error: Exception, *consequences: Exception) -> str:
    """Describe why a handshake failed; only the first error counts."""
    reason = str(getattr(error, "reason", None) or error)
    if reason in NOT_TLS:
        return f"the client sent no TLS ({reason}): check its security.protocol"
    return reason or "the client closed the connection; it may not trust the certificate"


def listener_securities(
    settings: BrokerSettings,
    credentials: ScramCredentials,
    clock_ms: Callable[[], int],
    tokens: Tokens | None = None,
) -> dict[str, ListenerSecurity]:
    """Return listener name -> its security, for listeners with TLS or SASL. Raises ConfigError."""
    return {
        one.name: ListenerSecurity(one, settings.given, credentials, clock_ms, tokens)
        for one in settings.listening
        if one.tls or one.sasl
    }


def inter_broker_security(settings: BrokerSettings) -> Security:
    """Return the security of this node's connections to other brokers. Raises ConfigError."""
    listener = settings.between_brokers
    properties = ListenerProperties(listener, settings.given)
    mechanism = jaas = ""
    with _errors_of_listener(listener):
        if listener.sasl:
            mechanism = properties.get("sasl.mechanism.inter.broker.protocol")
            enabled = properties.get("sasl.enabled.mechanisms").split(",")
            if mechanism not in enabled:
                raise ValueError(
                    f"sasl.mechanism.inter.broker.protocol={mechanism} is not among sasl.enabled.mechanisms="
                    f"{','.join(enabled)}"
                )
            jaas = properties.jaas(mechanism)
            _module(mechanism, jaas)
        return security_by(properties.get, listener.protocol, mechanism, jaas)


def _reader_of_names() -> Callable[[bytes], str]:
    try:
        from anabranch.clients.certificates import distinguished_name
    except ImportError:
        raise ValueError("certificates of clients need `pip install anabranch[security]`") from None
    return distinguished_name


def _module(mechanism: str, jaas: str) -> LoginModule:
    module = login_module(jaas)
    if module.kind != _KINDS[mechanism]:
        raise ValueError(f"sasl.jaas.config: wrong login module for {mechanism}")
    return module


def _unsecured_tokens(options: Mapping[str, str]) -> UnsecuredTokens:
    return UnsecuredTokens(
        user_claim=options.get("unsecuredValidatorPrincipalClaimName", "sub"),
        scope_claim=options.get("unsecuredValidatorScopeClaimName", "scope"),
        required_scope=tuple(options.get("unsecuredValidatorRequiredScope", "").split()),
        clock_skew_ms=int(options.get("unsecuredValidatorAllowableClockSkewMs", "0")),
    )


@contextlib.contextmanager
def _errors_of_listener(listener: Listener) -> Iterator[None]:
    """Turn errors into a ConfigError that names the listener."""
    try:
        yield
    except (ValueError, OSError) as error:
        where = f": {error.filename}" if isinstance(error, OSError) and error.filename else ""
        what = error.strerror if isinstance(error, OSError) and where else error
        raise ConfigError(f"listener {listener.name}: {what}{where}") from None
