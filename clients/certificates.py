"""Reads and issues certificates: PKCS#12 stores, distinguished names as Java writes them, and a local authority.

The only module that imports `cryptography`, an extra (`anabranch[security]`): TLS with PEM files and without user names
needs only the standard library.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_DAYS: Final = 3650
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.6": "C",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""The attributes with keywords in RFC 2253."""
_ESCAPED: Final = re.compile(r'([,+"\\<>;])')
_PRIVATE: Final = serialization.PrivateFormat.PKCS8


def pkcs12_identity(store: bytes, password: str, sealed_with: str) -> tuple[bytes, bytes]:
    """Return the key of a PKCS#12 store, encrypted with another password, and its chain, as PEM. Raises ValueError."""
    key, certificate, others = pkcs12.load_key_and_certificates(store, password.encode())
    if key is None or certificate is None:
        raise ValueError("it holds no private key with a certificate")
    sealed = key.private_bytes(
        serialization.Encoding.PEM, _PRIVATE, serialization.BestAvailableEncryption(sealed_with.encode())
    )
    return sealed, pem([certificate, *others])


def pkcs12_trusted(store: bytes, password: str) -> str:
    """Return the certificates of a PKCS#12 store, as PEM. Raises ValueError."""
    found = pkcs12.load_pkcs12(store, password.encode() or None)
    certificates = [one.certificate for one in found.additional_certs]
    if found.cert is not None:
        certificates.append(found.cert.certificate)
    if not certificates:
        raise ValueError("it holds no certificate")
    return pem(certificates).decode()


def pem(certificates: Iterable[x509.Certificate]) -> bytes:
    """Encode certificates as PEM, one after another."""
    return b"".join(one.public_bytes(serialization.Encoding.PEM) for one in certificates)


def distinguished_name(certificate: bytes) -> str:
    """Return a certificate's (DER) subject as Java's `X500Principal.getName()` writes it: "CN=alice,OU=Dev,C=US"."""
    subject = x509.load_der_x509_certificate(certificate).subject
    return ",".join("+".join(_attribute(one) for one in rdn) for rdn in reversed(subject.rdns))


def _attribute(attribute: x509.NameAttribute[str | bytes]) -> str:
    oid = attribute.oid.dotted_string
    keyword = _KEYWORDS.get(oid)
    if keyword is None or isinstance(attribute.value, bytes):
        raw = attribute.value if isinstance(attribute.value, bytes) else attribute.value.encode()
        tag = attribute._type.value  # no public attribute shows how the value was encoded
        return f"{oid}=#{bytes([tag, *_der_length(len(raw))]).hex()}{raw.hex()}"
    text = _ESCAPED.sub(r"\\\1", attribute.value)
    if text.startswith(("#", " ")):
        text = "\\" + text
    if text.endswith(" ") and len(text) > 1:
        text = text[:-1] + "\\ "
    return f"{keyword}={text}"


def _der_length(length: int) -> bytes:
    if length < 0x80:
        return bytes([length])
    raw = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([0x80 | len(raw)]) + raw


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """A certificate and its key, as PEM; `chain` includes the authority's certificate."""

    certificate: bytes
    key: bytes = field(repr=False)
    chain: bytes = b""

    def store(self, password: str, name: str = "anabranch") -> bytes:
        """Encode both as a PKCS#12 store."""
        key = serialization.load_pem_private_key(self.key, None)
        own, *others = x509.load_pem_x509_certificates(self.certificate + self.chain)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        sealing = serialization.BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(name.encode(), key, own, others, sealing)


class CertificateAuthority:
    """A certificate authority for a local cluster."""

    def __init__(self, *, now: datetime.datetime | None = None) -> None:
        self._now = now or datetime.datetime.now(datetime.UTC)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Anabranch local authority")])
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            **dict.fromkeys(
                ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only"), False
            ),
            decipher_only=False,
        )
        self._own = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def certificate(self) -> bytes:
        """The authority's certificate for trust stores, as PEM."""
        return pem([self._own])

    def issue(self, names: Sequence[tuple[str, str]], hosts: Sequence[str] = ()) -> IssuedCertificate:
        """Issue a certificate for a broker, with its hosts, or for a user.

        Args:
            names: The distinguished name, most general first: `[("O", "Acme"), ("CN", "alice")]`.
            hosts: Host names and addresses that clients connect to.
        """
        oids = {keyword: x509.ObjectIdentifier(oid) for oid, keyword in _KEYWORDS.items()}
        oids["emailAddress"] = NameOID.EMAIL_ADDRESS
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(oids[keyword], text) for keyword, text in names])
        builder = self._builder(subject, key.public_key()).add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_general(one) for one in hosts]), False)
        certificate = builder.sign(self._key, hashes.SHA256())
        raw = key.private_bytes(serialization.Encoding.PEM, _PRIVATE, serialization.NoEncryption())
        return IssuedCertificate(pem([certificate]), raw, self.certificate)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - datetime.timedelta(days=1))
            .not_valid_after(self._now + datetime.timedelta(days=VALID_DAYS))
        )


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
