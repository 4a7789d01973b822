"""`anabranch certs make` writes what brokers and clients need; only the owner can read the keys."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from click.testing import CliRunner

from anabranch.cli.certs import command
from anabranch.clients.tls import TlsSettings, client_context, server_context
from tests.clients.test_tls import shaken


def test_certificates_work_for_brokers_and_clients(tmp_path: Path) -> None:
    where = str(tmp_path / "certs")
    made = CliRunner().invoke(command, ["make", where, "--host", "kafka.example", "--user", "alice", "--stores"])
    assert made.exit_code == 0, made.output
    trust = {"truststore_type": "PEM", "truststore_location": f"{where}/ca.pem"}
    pem = TlsSettings(keystore_type="PEM", keystore_location=f"{where}/broker.pem", **trust)
    store = {"keystore_type": "PKCS12", "keystore_password": "changeit"}
    p12 = TlsSettings(keystore_location=f"{where}/broker.p12", **store, **trust)
    alice = client_context(TlsSettings(keystore_type="PEM", keystore_location=f"{where}/alice.pem", **trust))
    for server in (server_context(pem, "required", ssl.SSLContext), server_context(p12, "required", ssl.SSLContext)):
        for host in ("localhost", "kafka.example"):
            assert shaken(server, alice, host)[1] is not None
    for name in ("broker.pem", "alice.pem", "broker.p12", "alice.p12"):
        assert (tmp_path / "certs" / name).stat().st_mode & 0o077 == 0


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    assert CliRunner().invoke(command, ["make", str(tmp_path)]).exit_code == 0
    again = CliRunner().invoke(command, ["make", str(tmp_path)])
    assert again.exit_code == 1
    assert "ca.pem exists" in again.output


@pytest.mark.parametrize("user", ["broker", "ca", "../alice", ""])
def test_user_whose_file_would_be_another_is_refused(tmp_path: Path, user: str) -> None:
    """A user `broker` overwrote the brokers' key and certificate."""
    refused = CliRunner().invoke(command, ["make", str(tmp_path / "certs"), "--user", user])
    assert refused.exit_code == 1 and "choose another name" in refused.output
    assert list(tmp_path.iterdir()) == []
