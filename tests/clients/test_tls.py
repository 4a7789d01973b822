"""Key and trust stores of both formats are read by Kafka's properties; errors name a remedy."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from anabranch.clients.tls import TlsSettings, client_context, load_identity, server_context
from tests.secured.certificates import HOSTS, files


def shaken(
    server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost"
) -> tuple[ssl.SSLObject, bytes | None]:
    """The outcome of a handshake in memory: the client's side, and the client's certificate as the server sees it."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_hostname=host)
    other = server.wrap_bio(to_server, to_client, server_side=True)
    waiting = [one, other]
    while waiting:
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                pass
    return one, other.getpeercert(binary_form=True)


def pem(**more: str) -> TlsSettings:
    own = {"keystore_type": "PEM", "keystore_location": str(files().broker)}
    trust = {"truststore_type": "PEM", "truststore_location": str(files().ca)}
    return TlsSettings(**{**own, **trust, **more})


def test_pem_files_are_read() -> None:
    client, shown = shaken(server_context(pem(), "required", ssl.SSLContext), client_context(pem()))
    assert client.version() == "TLSv1.3"
    assert shown is not None


def test_pem_texts_are_read() -> None:
    issued = files().issue("inline", HOSTS)
    inline = pem(
        keystore_location="",
        keystore_key=issued.key.decode(),
        keystore_certificate_chain=issued.certificate.decode(),
        truststore_location="",
        truststore_certificates=files().ca.read_text(),
    )
    shaken(server_context(inline, "requested", ssl.SSLContext), client_context(inline))
    assert issued.key.decode() not in repr(inline)


def test_pkcs12_stores_are_read_under_java_default_type(tmp_path: Path) -> None:
    store = tmp_path / "b.p12"
    store.write_bytes(files().issue("stored", HOSTS).store("changeit"))
    for kind in ("PKCS12", "JKS"):
        settings = pem(keystore_type=kind, keystore_location=str(store), keystore_password="changeit")
        shaken(server_context(settings, "none", ssl.SSLContext), client_context(pem()))
    trusting = pem(truststore_type="PKCS12", truststore_location=str(store), truststore_password="changeit")
    shaken(server_context(pem(), "none", ssl.SSLContext), client_context(trusting))


def test_hostname_is_verified_unless_algorithm_is_empty() -> None:
    server = server_context(pem(), "none", ssl.SSLContext)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shaken(server, client_context(pem()), "kafka.example")
    shaken(server, client_context(pem(endpoint_identification_algorithm="")), "kafka.example")


def test_configured_versions_and_cipher_suites_are_used() -> None:
    older = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    client, _ = shaken(server_context(pem(cipher_suites=older), "none", ssl.SSLContext), client_context(pem()))
    assert client.cipher() == ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLSv1.2", 256)
    newer = "TLS_AES_128_GCM_SHA256,TLS_CHACHA20_POLY1305_SHA256,TLS_AES_256_GCM_SHA384"
    client, _ = shaken(server_context(pem(cipher_suites=newer), "none", ssl.SSLContext), client_context(pem()))
    assert client.version() == "TLSv1.3"
    chacha = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"
    client, _ = shaken(server_context(pem(cipher_suites=chacha), "none", ssl.SSLContext), client_context(pem()))
    assert client.cipher() == ("ECDHE-ECDSA-CHACHA20-POLY1305", "TLSv1.2", 256)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"keystore_key": "k"}, r"are mutually exclusive"),
        ({"keystore_location": "", "keystore_key": "k"}, r"go together"),
        ({"keystore_type": "PKCS12", "keystore_key": "k"}, r"only with ssl\.keystore\.type=PEM"),
        ({"keystore_password": "x"}, r"a PEM store has none"),
        ({"keystore_type": "PKCS12"}, r"a PKCS12 store needs a password"),
        ({"keystore_type": "PKCS12", "keystore_password": "x"}, r"not read with this password"),
        ({"keystore_type": "BKS", "keystore_password": "x"}, r"write PEM or PKCS12"),
        ({"truststore_password": "x"}, r"ssl\.truststore\.password: a PEM store has none"),
        ({"truststore_certificates": "x"}, r"are mutually exclusive"),
        ({"truststore_location": "", "truststore_certificates": "x"}, r"no certificates in PEM"),
        ({"truststore_type": "PKCS12"}, r"ssl\.truststore\.location=.*not read with this password"),
        ({"endpoint_identification_algorithm": "ldaps"}, r"write https"),
        ({"cipher_suites": "TLS_AES_256_GCM_SHA384", "enabled_protocols": "TLSv1.2"}, r"no suite for TLSv1\.2"),
        (
            {"cipher_suites": "TLS_AES_128_GCM_SHA256"},
            r"cannot choose .*TLS_AES_256_GCM_SHA384.*ssl\.enabled\.protocols",
        ),
        ({"cipher_suites": "TLS_AES_512_GCM_SHA999"}, r"unknown cipher suites"),
    ],
)
def test_inconsistent_tls_settings_are_refused(given: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        client_context(pem(**given))


def test_jks_store_is_refused_with_conversion_command(tmp_path: Path) -> None:
    store = tmp_path / "broker.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    settings = pem(keystore_type="JKS", keystore_location=str(store), keystore_password="changeit")
    with pytest.raises(ValueError, match=r"keytool -importkeystore .*-destkeystore broker\.p12"):
        load_identity(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), settings)


def test_encrypted_key_requires_its_password(tmp_path: Path) -> None:
    from anabranch.clients.certificates import pkcs12_identity

    key, chain = pkcs12_identity(files().issue("sealed", HOSTS).store("changeit"), "changeit", "of the key")
    path = tmp_path / "sealed.pem"
    path.write_bytes(key + chain)
    shaken(
        server_context(pem(keystore_location=str(path), key_password="of the key"), "none", ssl.SSLContext),
        client_context(pem()),
    )
    with pytest.raises(ValueError, match=r"another ssl\.key\.password"):
        server_context(pem(keystore_location=str(path)), "none", ssl.SSLContext)
