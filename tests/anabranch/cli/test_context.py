"""Commands use the selected cluster, and its credentials go to no other cluster."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from anabranch.cli.context_store import Context, chosen_token, contexts_file, current_context, read_contexts
from anabranch.cli.control import with_control
from anabranch.cli.remote import bootstrap, client_properties
from anabranch.control.client import ControlClient
from tests.anabranch.cli.conftest import Command

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
    control = ("--control", "staging:2", "--control-token", "opensesame")
    assert anabranch("context", "create", "staging", *words, *control).exit_code == 0
    assert anabranch("context", "use", "staging").output == "commands use staging:1\n"


@click.command
@bootstrap
def asking(bootstrap: str) -> None:
    click.echo(json.dumps([bootstrap, client_properties().get("sasl.mechanism")]))


@click.command
@with_control
def controlling(control: ControlClient) -> None:
    click.echo(json.dumps([control._url, chosen_token("")]))


def told(command: click.Command, *words: str, env: dict[str, str] | None = None) -> list[str | None]:
    result = CliRunner().invoke(command, list(words), env=env)
    assert result.exit_code == 0, result.output
    answer: list[str | None] = json.loads(result.output)
    return answer


def test_commands_use_the_local_cluster_without_a_context() -> None:
    assert told(asking) == ["127.0.0.1:9092", None]
    assert told(controlling) == ["http://127.0.0.1:9190", ""]


@pytest.mark.usefixtures("staging")
def test_commands_use_the_current_context_with_its_credentials() -> None:
    assert told(asking) == ["staging:1", "PLAIN"]
    assert told(controlling) == ["http://staging:2", "opensesame"]


@pytest.mark.usefixtures("staging")
def test_credentials_of_a_context_are_not_sent_to_a_cluster_that_is_named() -> None:
    assert told(asking, "--bootstrap-server", "other:1") == ["other:1", None]
    assert told(asking, env={"ANABRANCH_BOOTSTRAP_SERVERS": "other:1"}) == ["other:1", None]
    assert told(controlling, "--control", "other:2") == ["http://other:2", ""]


@pytest.mark.usefixtures("staging")
def test_file_of_contexts_is_readable_for_its_user_alone(anabranch: Command) -> None:
    assert stat.S_IMODE(contexts_file().stat().st_mode) == 0o600
    listed = anabranch("context", "list", "--json").output
    assert json.loads(listed)["current"] is True and "secret" not in listed and "opensesame" not in listed


@pytest.mark.usefixtures("staging")
def test_deleted_or_unchosen_context_is_used_no_more(anabranch: Command) -> None:
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
    ],
)
def test_mistakes_are_refused_with_a_way_out(words: tuple[str, ...], reason: str, anabranch: Command) -> None:
    refused = anabranch("context", *words)
    assert (refused.exit_code, reason in refused.output) == (2, True), refused.output


def test_damaged_file_is_named(anabranch: Command) -> None:
    contexts_file().parent.mkdir()
    contexts_file().write_text("{}")
    refused = anabranch("topics", "list")
    assert (refused.exit_code, str(contexts_file()) in refused.output) == (2, True), refused.output
