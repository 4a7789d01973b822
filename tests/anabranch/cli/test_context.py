"""Commands use the selected cluster, and its credentials go to no other cluster."""

from __future__ import annotations

import contextlib
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from anabranch.cli.context_store import Context, chosen_token, contexts_file, current_context, read_contexts
from anabranch.cli.control import with_control
from anabranch.cli.remote import bootstrap, client_properties
from anabranch.control.client import ControlClient
from tests.anabranch.cli.conftest import Command

if TYPE_CHECKING:
    from anabranch.audit.audit_options import AuditOptions

ALICE = """\
security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="secret";
"""


@pytest.fixture(autouse=True)
def no_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("ANABRANCH_BOOTSTRAP_SERVERS", "ANABRANCH_COMMAND_CONFIG", "ANABRANCH_CONTROL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def staging(anabranch: Command, tmp_path: Path) -> None:
    file = tmp_path / "alice.properties"
    file.write_text(ALICE)
    words = ("--bootstrap-server", "staging:1", "--command-config", str(file))
    (tmp_path / "ca.pem").touch()
    control = ("--control", "staging:2", "--control-token", "opensesame", "--control-ca", str(tmp_path / "ca.pem"))
    assert anabranch("context", "create", "staging", *words, *control).exit_code == 0
    assert anabranch("context", "use", "staging").output == "commands use staging:1\n"


@click.command
@bootstrap
def print_servers_and_mechanism(bootstrap: str) -> None:
    click.echo(json.dumps([bootstrap, client_properties().get("sasl.mechanism")]))


@click.command
@with_control
def controlling(control: ControlClient) -> None:
    click.echo(json.dumps([control._url, chosen_token(""), Path(control._ca_file).name]))


def json_output_of(command: click.Command, *words: str, env: dict[str, str] | None = None) -> list[str | None]:
    result = CliRunner().invoke(command, list(words), env=env)
    assert result.exit_code == 0, result.output
    answer: list[str | None] = json.loads(result.output)
    return answer


def test_commands_use_the_local_cluster_without_a_context() -> None:
    assert json_output_of(print_servers_and_mechanism) == ["127.0.0.1:9092", None]
    assert json_output_of(controlling) == ["http://127.0.0.1:9190", "", ""]


@pytest.mark.usefixtures("staging")
def test_commands_use_the_current_context_with_its_credentials() -> None:
    assert json_output_of(print_servers_and_mechanism) == ["staging:1", "PLAIN"]
    assert json_output_of(controlling) == ["http://staging:2", "opensesame", "ca.pem"]


@pytest.mark.usefixtures("staging")
def test_context_credentials_are_not_sent_to_explicit_cluster() -> None:
    assert json_output_of(print_servers_and_mechanism, "--bootstrap-server", "other:1") == ["other:1", None]
    assert json_output_of(print_servers_and_mechanism, env={"ANABRANCH_BOOTSTRAP_SERVERS": "other:1"}) == [
        "other:1",
        None,
    ]
    assert json_output_of(controlling, "--control", "other:2") == ["http://other:2", "", ""]


@pytest.mark.usefixtures("staging")
def test_contexts_file_is_readable_only_for_its_user(anabranch: Command) -> None:
    assert stat.S_IMODE(contexts_file().stat().st_mode) == 0o600
    listed = anabranch("context", "list", "--json").output
    assert json.loads(listed)["current"] is True and "secret" not in listed and "opensesame" not in listed


@pytest.mark.usefixtures("staging")
def test_deleted_or_deselected_context_is_unused(anabranch: Command) -> None:
    assert anabranch("context", "use", "--none").exit_code == 0
    assert current_context() == Context()
    assert anabranch("context", "use", "staging").exit_code == 0
    assert anabranch("context", "delete", "staging").exit_code == 0
    assert (read_contexts().current, dict(read_contexts().by_name)) == (None, {})


@pytest.mark.usefixtures("staging")
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("use", "stagin"), "there is no context stagin; did you mean staging?"),
        (("delete", "production"), "there is no context production; there are staging"),
        (("use",), "write the name of a context, or --none"),
        (("create", "bad", "--bootstrap-server", "h:x"), "'h:x' has no port"),
        (("create", "staging"), "there is a context staging, of staging:1: write --replace"),
    ],
)
def test_invalid_contexts_are_refused_with_remedy(words: tuple[str, ...], reason: str, anabranch: Command) -> None:
    refused = anabranch("context", *words)
    assert (refused.exit_code, reason in refused.output) == (2, True), refused.output


@pytest.mark.usefixtures("staging")
def test_tour_uses_current_context_unless_own_cluster_is_requested(
    anabranch: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anabranch.cli import tour

    used: list[tuple[str, str, str]] = []

    @contextlib.contextmanager
    def connected(url: str, token: str, ca_file: str = "") -> Iterator[SimpleNamespace]:
        used.append((url, token, Path(ca_file).name))
        yield SimpleNamespace(tour=SimpleNamespace(stories=[{"story": "s", "title": "T", "summary": "S"}]))

    monkeypatch.setattr(tour, "open_client", connected)
    monkeypatch.setattr(tour, "_own_cluster", lambda: connected("own", ""))
    assert "on the cluster of the current context, staging:2; --own" in anabranch("tour").output
    for words in (("tour", "--own"), ("tour", "--control", "other:2")):
        assert "current context" not in anabranch(*words).output
    refused = anabranch("tour", "--own", "--control", "other:2")
    assert (refused.exit_code, "--own or --control, not both" in refused.output) == (2, True)
    assert anabranch("context", "create", "plain", "--bootstrap-server", "plain:1").exit_code == 0
    assert anabranch("context", "use", "plain").exit_code == 0
    assert anabranch("tour").exit_code == 0, "a context without a control plane of its own"
    assert used == [("staging:2", "opensesame", "ca.pem"), ("own", "", ""), ("other:2", "", ""), ("own", "", "")]


@pytest.mark.usefixtures("staging")
def test_context_is_replaced_on_request_with_its_credentials(anabranch: Command) -> None:
    done = anabranch("context", "create", "staging", "--bootstrap-server", "other:1", "--replace")
    assert done.exit_code == 0, done.output
    assert current_context() == Context("other:1")


@pytest.mark.usefixtures("staging")
def test_audit_uses_the_current_context_with_its_credentials(
    anabranch: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    audit = pytest.importorskip("anabranch.cli.audit")
    options: list[AuditOptions] = []
    monkeypatch.setattr(audit, "run", lambda wish: options.append(wish) or 0)
    assert anabranch("audit", "--topic", "t").exit_code == 0
    assert anabranch("audit", "--topic", "t", "--bootstrap-server", "other:1").exit_code == 0
    used = [(one.bootstrap_servers, one.client.get("sasl.mechanism")) for one in options]
    assert used == [("staging:1", "PLAIN"), ("other:1", None)]
    refused = anabranch("audit", "--topic", "t", "--package", str(tmp_path / "job"))
    assert (refused.exit_code, "write --command-config FILE" in refused.output) == (2, True), refused.output


def test_damaged_file_is_named(anabranch: Command) -> None:
    contexts_file().parent.mkdir()
    contexts_file().write_text("{}")
    refused = anabranch("topics", "list")
    assert (refused.exit_code, str(contexts_file()) in refused.output) == (2, True), refused.output
