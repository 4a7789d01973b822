"""TLS of the control plane: contexts of servers and clients, and the reason for a failed handshake in one line.

A certificate file is PEM, with the private key, the certificate and its chain, as `anabranch certs make` writes it. It
is what a broker takes as `ssl.keystore.location` with `ssl.keystore.type=PEM`.
"""

from __future__ import annotations

import ssl
from typing import Final

from anabranch.clients.tls import TlsSettings, client_context, server_context

NOT_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST")
"""OpenSSL's reasons for a response that is not a handshake."""
EXPIRED: Final = 10
"""OpenSSL's code for a certificate whose time is over (X509_V_ERR_CERT_HAS_EXPIRED)."""
OTHER_HOST: Final = (62, 64)
"""OpenSSL's codes for a certificate of another host name or address."""
PERHAPS_TLS: Final = "the server has closed the connection without a response; if it uses TLS, write https://"


def serving_context(certificate_file: str) -> ssl.SSLContext:
    """Create the context of a server. Raises ValueError, OSError."""
    settings = TlsSettings(keystore_type="PEM", keystore_location=certificate_file)
    return server_context(settings, "none", ssl.SSLContext)


def trusting_context(ca_file: str) -> ssl.SSLContext:
    """Create the context of a client, which trusts the CA of a file, or the system's without a file.

    Raises ValueError, OSError.
    """
    return client_context(TlsSettings(truststore_type="PEM", truststore_location=ca_file))


def reason_of(error: ssl.SSLError) -> str:
    """Why a handshake with a server failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        advice = "" if error.verify_code in (EXPIRED, *OTHER_HOST) else "; name the file of its CA"
        return f"the server's certificate is not accepted: {error.verify_message.rstrip('.')}{advice}"
    if error.reason in NOT_TLS:
        return "the server uses no TLS; write http://"
    return f"the TLS handshake failed: {error.reason or error}"
