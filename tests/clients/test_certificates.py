"""Distinguished names are written like in Java, and key stores are read back unchanged."""

from __future__ import annotations

import ssl

import pytest

from anabranch.clients.certificates import CertificateAuthority, distinguished_name, pkcs12_identity, pkcs12_trusted

AUTHORITY = CertificateAuthority()


@pytest.mark.parametrize(
    ("names", "written"),
    [
        ([("C", "US"), ("O", "Acme"), ("CN", "alice")], "CN=alice,O=Acme,C=US"),
        ([("CN", 'a,b+c"d\\e<f>g;h')], 'CN=a\\,b\\+c\\"d\\\\e\\<f\\>g\\;h'),
        ([("CN", " #a ")], "CN=\\ #a\\ "),
        ([("CN", "#a")], "CN=\\#a"),
        ([("CN", "é")], "CN=é"),
        ([("CN", "a"), ("emailAddress", "a@b")], "1.2.840.113549.1.9.1=#1603614062,CN=a"),
        ([("DC", "org"), ("UID", "u"), ("L", "l"), ("ST", "s")], "ST=s,L=l,UID=u,DC=org"),
        ([("STREET", "t"), ("OU", "o")], "OU=o,STREET=t"),
    ],
)
def test_distinguished_name_is_formatted_as_in_java(names: list[tuple[str, str]], written: str) -> None:
    issued = AUTHORITY.issue(names)
    assert distinguished_name(ssl.PEM_cert_to_DER_cert(issued.certificate.decode())) == written


def test_long_value_without_keyword_is_not_truncated() -> None:
    issued = AUTHORITY.issue([("CN", "a"), ("emailAddress", "x" * 200)])
    written = distinguished_name(ssl.PEM_cert_to_DER_cert(issued.certificate.decode()))
    assert written == "1.2.840.113549.1.9.1=#1681c8" + "78" * 200 + ",CN=a"


def test_pkcs12_store_contains_key_and_chain_and_refuses_wrong_password() -> None:
    issued = AUTHORITY.issue([("CN", "a")])
    key, chain = pkcs12_identity(issued.store("changeit"), "changeit", "other")
    assert b"ENCRYPTED PRIVATE KEY" in key
    assert chain == issued.certificate + issued.chain
    assert pkcs12_trusted(issued.store("changeit"), "changeit").count("BEGIN CERTIFICATE") == 2
    with pytest.raises(ValueError, match="password"):
        pkcs12_identity(issued.store("changeit"), "guessed", "other")
    with pytest.raises(ValueError, match=r".+"):
        pkcs12_identity(b"nonsense", "changeit", "other")


def test_repr_hides_private_key() -> None:
    issued = AUTHORITY.issue([("CN", "a")])
    assert issued.key.decode().splitlines()[1] not in repr(issued)
