"""Machine-readable listings, and one-line errors with a remedy."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from typing import Any

import click
import pytest

from anabranch.cli.remote import refusals, tell
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.anabranch.cli.conftest import Command


def test_row_is_printed_as_json_or_text(capsys: pytest.CaptureFixture[str]) -> None:
    tell(True, {"name": "Köln"}, ["a", "b"])
    tell(False, {"name": "Köln"}, ["a", "b"])
    assert capsys.readouterr().out == '{"name": "Köln"}\na\nb\n'


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (
            KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "t"),
            1,
            "no such topic: `anabranch topics list` shows the topics",
        ),
        (KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "g"), 1, "; look here"),
        (ConnectionRefusedError("nobody"), 1, "nobody; is a cluster running at h:1?"),
        (TimeoutError(), 1, "no answer; is a cluster running at h:1?"),
        (ValueError("wrong"), 2, "wrong"),
    ],
)
def test_errors_are_one_line(error: Exception, code: int, said: str) -> None:
    with (
        pytest.raises(click.ClickException) as caught,
        refusals("h:1", hints={ErrorCode.GROUP_ID_NOT_FOUND: "look here"}),
    ):
        raise error
    assert (caught.value.exit_code, said in caught.value.message) == (code, True), caught.value.message


def test_every_listing_has_json_output(servers: str, anabranch: Command) -> None:
    at = ("--bootstrap-servers", servers)
    settings = ("--partitions", "2", "--config", "retention.ms=60000")
    assert anabranch("topics", "create", "listed", *settings, *at).exit_code == 0
    assert anabranch("produce", "listed", "a", "b", "c", "--partition", "1", *at).exit_code == 0
    assert anabranch("consume", "listed", "--group", "listers", "--count", "2", *at).exit_code == 0
    assert anabranch("topics", "alter", "listed", "--partitions", "3", *at).exit_code == 0

    def rows(*words: str) -> list[dict[str, Any]]:
        result = anabranch(*words, "--json", *at)
        assert result.exit_code == 0, result.output
        return [json.loads(line) for line in result.output.splitlines()]

    assert {"name": "listed"} in rows("topics", "list")
    (topic,) = rows("topics", "describe", "listed")
    assert topic["history"] == [{"generation": 0, "partitions": 2}, {"generation": 1, "partitions": 3}]
    assert [one["leader"] for one in topic["partitions"]] == [1, 1, 1]
    assert {"topic": "listed", "name": "retention.ms", "value": "60000", "source": "topic"} in rows(
        "topics", "config", "listed"
    )
    listed = {"group": "listers", "type": "classic", "protocol": "consumer", "state": "Empty"}
    assert listed in rows("groups", "list")
    (group,) = rows("groups", "describe", "listers")
    assert (group["lag"], group["members"]) == (1, [])
    output = anabranch("groups", "describe", "listers", *at).output.splitlines()
    assert output[0] == "listers: classic group, Empty, 0 members, protocol -, lag 1"
    assert (
        output[-1]
        == "  listed-1                         committed            2  end            3  lag          1  no member"
    )
    closed = rows("groups", "gates", "listers", "--topic", "listed")
    assert {blocker["partition"] for gate in closed for blocker in gate["blockers"]} <= {0, 1}
    (feature,) = rows("features", "describe")
    assert feature["name"] == "reshard.version"
    assert json.loads(anabranch("nodes", "list", "--cluster", "no such", "--json").output or "[]") == []


def test_empty_listing_is_reported_on_stderr(anabranch: Command) -> None:
    settings = ("--brokers", "1", "--config", "authorizer.class.name=kafka.security.authorizer.AclAuthorizer")
    words = (sys.executable, "-m", "anabranch.cli.main", "up", "--port", "0", *settings)
    with subprocess.Popen([*words, "--config", "super.users=User:ANONYMOUS"], stdout=subprocess.PIPE, text=True) as up:
        try:
            assert up.stdout is not None
            at = ("--bootstrap-servers", up.stdout.readline().partition("bootstrap=")[2].strip())
            for listing in (("topics", "list"), ("groups", "list"), ("users", "list"), ("acls", "list")):
                shown = anabranch(*listing, *at)
                assert (shown.exit_code, shown.stdout) == (0, "")
                assert shown.stderr.startswith("no "), listing
                assert anabranch(*listing, "--json", *at).output == ""
            assert anabranch("topics", "create", "plain", *at).exit_code == 0
            assert "no settings of its own" in anabranch("topics", "config", "plain", *at).stderr
        finally:
            up.terminate()


def on_terminal(*words: str) -> list[str]:
    """Run a command whose stdout is a terminal; the lines that it prints."""
    terminal, stdout = os.openpty()
    try:
        subprocess.run([sys.executable, "-m", "anabranch.cli.main", *words], stdout=stdout, check=True, timeout=60)
    finally:
        os.close(stdout)
    written = b""
    with contextlib.suppress(OSError):  # EIO ends what a terminal has shown
        while chunk := os.read(terminal, 65536):
            written += chunk
    os.close(terminal)
    return written.decode().splitlines()


def test_table_on_a_terminal_has_headings_and_in_a_pipe_only_rows(servers: str, anabranch: Command) -> None:
    at = ("--bootstrap-servers", servers)
    assert anabranch("produce", "headed", "a", *at).exit_code == 0
    assert anabranch("consume", "headed", "--group", "headers", "--count", "1", *at).exit_code == 0
    assert on_terminal("topics", "list", *at)[0] == "topic"
    heading, *rows = on_terminal("groups", "list", *at)
    assert heading.split() == ["group", "type", "state"]
    assert rows == anabranch("groups", "list", *at).output.splitlines()
    (row,) = [one for one in rows if one.startswith("headers ")]
    assert row.index("classic") == heading.index("type")


def test_event_headings_are_aligned_with_columns(url: str, anabranch: Command) -> None:
    assert anabranch("control", "kill", "3", "--control", url).exit_code == 0
    heading, first, *_ = on_terminal("control", "events", "--control", url)
    assert heading.split() == ["number", "seconds", "event", "details"]
    assert first[: len("     1")].strip().isdecimal() and heading.index("event") == first.index(first.split()[2])
