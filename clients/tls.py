"""TLS from Kafka's `ssl.*` properties, for brokers and clients: key stores, trust stores, versions.

Stores are PEM or PKCS#12. Java's JKS format is refused with a hint for conversion. Without a trust store the system's
authorities are trusted, as Java trusts its own. Source: `DefaultSslEngineFactory`.
"""

from __future__ import annotations

import os
import secrets
import ssl
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Final, TypeVar

Context = TypeVar("Context", bound=ssl.SSLContext)
VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
SUITES_OF_1_3: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
"""Python's `ssl` serves all of them, or no TLSv1.3."""
JKS_BEGINS: Final = b"\xfe\xed\xfe\xed"
NEEDS_EXTRA: Final = "needs `pip install anabranch[security]`"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """The properties with the prefix `ssl.`, dots as underscores. Secrets appear in no repr."""

    keystore_type: str = "JKS"
    keystore_location: str = ""
    keystore_password: str = field(default="", repr=False)
    keystore_key: str = field(default="", repr=False)
    keystore_certificate_chain: str = field(default="", repr=False)
    key_password: str = field(default="", repr=False)
    truststore_type: str = "JKS"
    truststore_location: str = ""
    truststore_password: str = field(default="", repr=False)
    truststore_certificates: str = field(default="", repr=False)
    enabled_protocols: str = "TLSv1.2,TLSv1.3"
    cipher_suites: str = ""
    endpoint_identification_algorithm: str = "https"

    @classmethod
    def read(cls, get: Callable[[str], str]) -> TlsSettings:
        """Read the settings; `get` returns a property's text, its default if it is not set."""
        return cls(**{name: get(f"ssl.{name.replace('_', '.')}") for name in cls.__dataclass_fields__})


def server_context(settings: TlsSettings, client_auth: str, kind: type[Context]) -> Context:
    """Create the broker's context. `client_auth`: none, requested or required. Raises ValueError, OSError."""
    context = kind(ssl.PROTOCOL_TLS_SERVER)
    if not load_identity(context, settings):
        raise ValueError("ssl.keystore.location: a listener with TLS needs a key and a certificate")
    context.verify_mode = CLIENT_AUTH[client_auth]
    if context.verify_mode is not ssl.CERT_NONE:
        load_trust(context, settings, ssl.Purpose.CLIENT_AUTH)
    context.options |= ssl.OP_NO_RENEGOTIATION
    _restrict(context, settings)
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Create the client's context, which checks the broker's host name by default. Raises ValueError, OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    algorithm = settings.endpoint_identification_algorithm.strip().lower()
    if algorithm not in ("", "https"):
        raise ValueError(f"ssl.endpoint.identification.algorithm={algorithm}: write https, or nothing for no check")
    context.check_hostname = algorithm == "https"
    load_identity(context, settings)
    load_trust(context, settings, ssl.Purpose.SERVER_AUTH)
    _restrict(context, settings)
    return context


def load_identity(context: ssl.SSLContext, settings: TlsSettings) -> bool:
    """Load key and certificate into a context, for future handshakes; return False if the settings have none.

    Raises ValueError, and OSError for an unreadable file.
    """
    kind = settings.keystore_type.upper()
    if settings.keystore_key or settings.keystore_certificate_chain:
        if kind != "PEM":
            raise ValueError("ssl.keystore.key: only with ssl.keystore.type=PEM")
        if settings.keystore_location:
            raise ValueError("ssl.keystore.key and ssl.keystore.location are mutually exclusive")
        if not (settings.keystore_key and settings.keystore_certificate_chain):
            raise ValueError("ssl.keystore.key and ssl.keystore.certificate.chain go together")
        inline = f"{settings.keystore_key}\n{settings.keystore_certificate_chain}\n".encode()
        _load_from_memory(context, inline, settings.key_password)
        return True
    if not settings.keystore_location:
        return False
    path = Path(settings.keystore_location)
    if kind == "PEM":
        if settings.keystore_password:
            raise ValueError("ssl.keystore.password: a PEM store has none, only ssl.key.password may be specified")
        _load(context, path, settings.key_password)
        return True
    if not settings.keystore_password:
        raise ValueError("ssl.keystore.password: a PKCS12 store needs a password")
    sealed_with = secrets.token_hex(16)
    store = _read_store(path, kind, "ssl.keystore")
    certificates = _certificates()
    try:
        key, chain = certificates.pkcs12_identity(store, settings.keystore_password, sealed_with)
    except ValueError as error:
        raise ValueError(f"ssl.keystore.location={path}: not read with this password: {error}") from None
    _load_from_memory(context, key + chain, sealed_with)
    return True


def load_trust(context: ssl.SSLContext, settings: TlsSettings, purpose: ssl.Purpose) -> None:
    """Load trusted authorities into a context. Raises ValueError, OSError."""
    kind, location = settings.truststore_type.upper(), settings.truststore_location
    if settings.truststore_certificates:
        if kind != "PEM":
            raise ValueError("ssl.truststore.certificates: only with ssl.truststore.type=PEM")
        if location:
            raise ValueError("ssl.truststore.certificates and ssl.truststore.location are mutually exclusive")
        _trust(context, settings.truststore_certificates, "ssl.truststore.certificates")
    elif not location:
        context.load_default_certs(purpose)
    elif kind == "PEM":
        if settings.truststore_password:
            raise ValueError("ssl.truststore.password: a PEM store has none")
        _trust(context, Path(location).read_text(), f"ssl.truststore.location={location}")
    else:
        store = _read_store(Path(location), kind, "ssl.truststore")
        certificates = _certificates()
        try:
            trusted = certificates.pkcs12_trusted(store, settings.truststore_password)
        except ValueError as error:
            raise ValueError(f"ssl.truststore.location={location}: not read with this password: {error}") from None
        _trust(context, trusted, f"ssl.truststore.location={location}")


def _trust(context: ssl.SSLContext, text: str, what: str) -> None:
    try:
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise ValueError(f"{what}: no certificates in PEM: {error}") from None


def _load(context: ssl.SSLContext, path: Path, password: str) -> None:
    path.open("rb").close()  # `ssl` does not name the unreadable file
    try:
        context.load_cert_chain(path, password=lambda: password)
    except ssl.SSLError as error:
        raise ValueError(
            f"ssl.keystore.location={path}: no private key and its certificates in PEM, or another ssl.key.password is "
            f"needed: {error.reason or error}"
        ) from None


def _load_from_memory(context: ssl.SSLContext, identity: bytes, password: str) -> None:
    """Load an identity through a temporary private file, because `ssl` reads only files."""
    descriptor, name = tempfile.mkstemp()
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(identity)
        try:
            context.load_cert_chain(name, password=lambda: password)
        except ssl.SSLError as error:
            raise ValueError(f"ssl.keystore: no private key with its certificate: {error.reason or error}") from None
    finally:
        Path(name).unlink()


def _read_store(path: Path, kind: str, what: str) -> bytes:
    store = path.read_bytes()
    if store.startswith(JKS_BEGINS):
        raise ValueError(
            f"{what}.location={path} is a JKS store, which is not supported; convert it to PKCS12: keytool "
            f"-importkeystore -srckeystore {path} -destkeystore {path.stem}.p12 -deststoretype PKCS12"
        )
    if kind not in ("JKS", "PKCS12"):
        raise ValueError(f"{what}.type={kind}: write PEM or PKCS12")
    return store


def _restrict(context: ssl.SSLContext, settings: TlsSettings) -> None:
    names = [one.strip() for one in settings.enabled_protocols.split(",") if one.strip()]
    unknown = [one for one in names if one not in VERSIONS]
    if unknown or not names:
        raise ValueError(f"ssl.enabled.protocols={settings.enabled_protocols}: write TLSv1.2, TLSv1.3 or both")
    versions = sorted(VERSIONS[one] for one in names)
    suites = [one.strip() for one in settings.cipher_suites.split(",") if one.strip()]
    if suites:
        older = [_openssl_name(one) for one in suites if "_WITH_" in one]
        newer = {one for one in suites if "_WITH_" not in one}
        try:
            context.set_ciphers(":".join(older) or "DEFAULT")
            known = newer <= set(SUITES_OF_1_3)
        except ssl.SSLError:
            known = False
        if not known:
            raise ValueError(f"ssl.cipher.suites={settings.cipher_suites}: unknown cipher suites")
        versions = [one for one in versions if (older if one is ssl.TLSVersion.TLSv1_2 else newer)]
        if not versions:
            raise ValueError(f"ssl.cipher.suites={settings.cipher_suites}: no suite for {', '.join(names)}")
        if ssl.TLSVersion.TLSv1_3 in versions and len(newer) < len(SUITES_OF_1_3):
            raise ValueError(
                f"ssl.cipher.suites={settings.cipher_suites}: Python cannot choose among the suites of TLSv1.3; name "
                f"{', '.join(SUITES_OF_1_3)}, or none of them with ssl.enabled.protocols=TLSv1.2"
            )
    context.minimum_version, context.maximum_version = versions[0], versions[-1]


def _openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a suite: TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 is ECDHE-RSA-AES256-GCM-SHA384."""
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    cipher = cipher.replace("AES_", "AES").replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    parts = ["" if exchange == "RSA" else exchange, cipher.replace("_CBC", "")]
    return "-".join(part for part in parts if part).replace("_", "-")


def _certificates() -> ModuleType:
    try:
        from anabranch.clients import certificates
    except ImportError:
        raise ValueError(f"a PKCS12 store {NEEDS_EXTRA}; or write the store as PEM") from None
    return certificates
