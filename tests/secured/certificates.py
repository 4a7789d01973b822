"""A certificate authority for tests, and certificate files of brokers and clients."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from anabranch.clients.certificates import CertificateAuthority, IssuedCertificate

HOSTS = ("localhost", "127.0.0.1", "::1")
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


class Files:
    """PEM files: `ca.pem`, `broker.pem`, and one for each user that is asked for."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = CertificateAuthority()
        self.ca = self.write("ca.pem", self.authority.certificate)
        self.broker = self.identity("broker", hosts=HOSTS)

    def write(self, name: str, content: bytes) -> Path:
        """A file of this content."""
        path = self.directory / name
        path.write_bytes(content)
        return path

    def issue(self, name: str, hosts: tuple[str, ...] = ()) -> IssuedCertificate:
        """A certificate of CN=name,O=Acme."""
        return self.authority.issue([("O", "Acme"), ("CN", name)], hosts)

    def identity(self, name: str, hosts: tuple[str, ...] = ()) -> Path:
        """A file with key, certificate and chain."""
        issued = self.issue(name, hosts)
        return self.write(f"{name}.pem", issued.key + issued.certificate + issued.chain)

    @property
    def properties(self) -> dict[str, str]:
        """What a broker with TLS is given."""
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.broker),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
        }


@functools.cache
def files() -> Files:
    """The same for all tests of a process: keys take a while to make."""
    return Files(Path(tempfile.mkdtemp(prefix="anabranch-certs-")))


def plain_users(listener: str, **passwords: str) -> dict[str, str]:
    """The properties of a listener whose users log in with PLAIN; brokers do as `admin`."""
    users = " ".join(f'user_{name}="{password}"' for name, password in passwords.items())
    own = f'username="admin" password="{passwords["admin"]}"' if "admin" in passwords else ""
    return {
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        f"listener.name.{listener.lower()}.plain.sasl.jaas.config": f"{PLAIN_MODULE} required {own} {users};",
    }
