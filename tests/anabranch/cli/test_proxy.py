"""`anabranch proxy` prints its ports, and refuses impossible options in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.anabranch.cli.conftest import Command
from tests.running import running
from tests.secured.certificates import files

PROXY = ("proxy", "--port", "0")


def test_proxy_serves_clients_with_rules_from_a_file(servers: str, anabranch: Command, tmp_path: Path) -> None:
    rules = tmp_path / "rules.json"
    rules.write_text('[{"name": "slow", "api": "CreateTopics", "delay_ms": 1}]')
    with running(
        *PROXY,
        "--upstream",
        servers,
        "--control",
        "127.0.0.1:0",
        "--control-journal",
        "9",
        "--rules",
        str(rules),
    ) as ready:
        made = anabranch("topics", "create", "by-proxy", "--bootstrap-servers", ready["bootstrap"])
        assert made.exit_code == 0, made.output
        assert "1 of 1 hit" in anabranch("faults", "list", "--control", ready["control"]).output
        assert "by slow" in anabranch("journal", "api=CreateTopics", "--control", ready["control"]).output
        refused = anabranch("clock", "stop", "--control", ready["control"])
        assert refused.exit_code == 1 and "rules can delay" in refused.output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "--upstream"),
        (("--upstream", "nowhere"), "not of the form"),
        (("--upstream", "h:1", "--port", "65536"), "65535"),
        (("--upstream", "127.0.0.1:19092", "--port", "19092"), "cannot be its own upstream"),
        (("--upstream", "h:1", "--port", "0", "--advertise", "kafka.example:9092"), "write --port"),
        (("--upstream", "h:1", "--control-journal", "5"), "needs --control"),
        (("--upstream", "h:1", "--config", "ssl.client.auth=required"), "TLS needs at least ssl.keystore.location"),
        (("--upstream", "h:1", "--config", "ssl.keystore.location=/nowhere"), "ssl.keystore.password"),
        (("--upstream", "h:1", "--upstream-config", "/nowhere"), "--upstream-config /nowhere"),
        (("--upstream", "h:1", "--port", "0", "--rules", "/nowhere"), "--rules /nowhere"),
    ],
)
def test_invalid_options_are_refused_in_one_line(words: tuple[str, ...], says: str, anabranch: Command) -> None:
    result = anabranch("proxy", *words)
    assert result.exit_code != 0 and says in result.output and "Traceback" not in result.output


def test_upstream_login_is_left_to_clients_and_tls_is_used(servers: str, anabranch: Command, tmp_path: Path) -> None:
    here, there = tmp_path / "server.properties", tmp_path / "client.properties"
    here.write_text(f"ssl.keystore.type=PEM\nssl.keystore.location={files().broker}\n")
    there.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n")
    client = tmp_path / "tls.properties"
    client.write_text(f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={files().ca}\n")
    with running(*PROXY, "--upstream", servers, "--upstream-config", str(there), "--config-file", str(here)) as ready:
        words = ("topics", "list", "--bootstrap-servers", ready["bootstrap"], "--command-config", str(client))
        assert anabranch(*words).exit_code == 0
