"""`anabranch produce` sends records to their partitions; errors are one line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from anabranch.cli.main import cli
from anabranch.clients.config import NetworkConfig
from tests.anabranch.cli.conftest import Command


def piped(content: bytes, *words: str) -> Result:
    return CliRunner().invoke(cli, list(words), input=content)


def stored(anabranch: Command, topic: str, *at: str) -> list[dict[str, Any]]:
    """What a topic has, in the order of its partitions and offsets."""
    lines = anabranch("consume", topic, "--until-end", "--json", *at).output.splitlines()
    return sorted(map(json.loads, lines), key=lambda one: (one["partition"], one["offset"]))


def test_values_and_lines_become_records(servers: str, anabranch: Command) -> None:
    at = ("--bootstrap-servers", servers)
    assert anabranch("topics", "create", "said", "--partitions", "2", *at).exit_code == 0
    said = anabranch("produce", "said", "one", "two", "--key", "k", "--header", "h=1", "--partition", "1", *at)
    assert said.output == "2 records stored in said\n  partition    1: 2, up to offset 1\n"
    assert piped(b"a:3\nb:4\n\nc:5", "produce", "said", "--separator", ":", "--partition", "0", *at).exit_code == 2
    lines = piped(b"a:3\n:4", "produce", "said", "--separator", ":", "--partition", "0", "--acks", "0", *at)
    assert lines.output == "2 records stored in said\n  partition    0: 2, unacknowledged\n"
    records = b'{"key": "k", "value": {"n": 5}, "headers": {"own": "2"}}\n{"value": null, "timestamp": 7}\n'
    more = ("--json", "--header", "h=1", "--partition", "1", "--compression", "zstd", *at)
    assert piped(records, "produce", "said", *more).exit_code == 0
    assert anabranch("produce", "said", "--null", "--key", "gone", "--partition", "1", *at).exit_code == 0
    found = [(one["partition"], one["key"], one["value"], one["headers"]) for one in stored(anabranch, "said", *at)]
    assert found == [
        (0, "a", "3", []),
        (0, "b", "4", []),
        (0, "a", "3", []),
        (0, "", "4", []),
        (1, "k", "one", [["h", "1"]]),
        (1, "k", "two", [["h", "1"]]),
        (1, "k", '{"n":5}', [["h", "1"], ["own", "2"]]),
        (1, None, None, [["h", "1"]]),
        (1, "gone", None, []),
    ]


def test_malformed_line_stops_after_earlier_lines(servers: str, anabranch: Command) -> None:
    at = ("--bootstrap-servers", servers)
    assert anabranch("topics", "create", "halted", *at).exit_code == 0
    result = piped(b'{"value": 1}\n{"value": \n{"value": 3}\n', "produce", "halted", "--json", *at)
    assert result.exit_code == 2
    assert "1 record stored in halted" in result.output and "line 2: not JSON" in result.output
    elsewhere = piped(b"a\nb\n", "produce", "halted", "--partition", "9", *at)
    assert elsewhere.exit_code == 2
    assert "line 1: INVALID_PARTITIONS" in elsewhere.output
    assert [one["value"] for one in stored(anabranch, "halted", *at)] == ["1"]


def test_crlf_line_ends_are_stripped(servers: str, anabranch: Command) -> None:
    at = ("--bootstrap-servers", servers)
    assert anabranch("topics", "create", "crlf", *at).exit_code == 0
    assert piped(b"one\r\ntwo\r\n\r\n", "produce", "crlf", *at).exit_code == 0
    assert piped(b"k:three\r\n", "produce", "crlf", "--separator", ":", *at).exit_code == 0
    assert anabranch("produce", "crlf", "an argument\r", *at).exit_code == 0
    assert [one["value"] for one in stored(anabranch, "crlf", *at)] == ["one", "two", "", "three", "an argument\r"]


def test_input_continues_at_failed_line_without_duplicates(servers: str, anabranch: Command) -> None:
    at = ("--bootstrap-servers", servers)
    assert anabranch("topics", "create", "resumed", *at).exit_code == 0
    lines = b'{"value": "1"}\n{"value": "2"}\n\n{"value": "4"}\n'
    ended = piped(lines, "produce", "resumed", "--json", *at)
    assert (ended.exit_code, "lines 1 to 2 are sent" in ended.output) == (2, True), ended.output
    assert "--skip-bad" in ended.output and "--from-line 3" in ended.output
    mended = lines.replace(b"\n\n", b'\n{"value": "3"}\n')
    assert piped(mended, "produce", "resumed", "--json", "--from-line", "3", *at).exit_code == 0
    assert [one["value"] for one in stored(anabranch, "resumed", *at)] == ["1", "2", "3", "4"]


def test_bad_lines_are_skipped_and_named_on_request(servers: str, anabranch: Command) -> None:
    at = ("--bootstrap-servers", servers)
    assert anabranch("topics", "create", "skipped", *at).exit_code == 0
    result = piped(b"k:1\n\nnone\nk:4\n", "produce", "skipped", "--separator", ":", "--skip-bad", *at)
    assert result.exit_code == 0, result.output
    assert "skipped line 2" in result.output and "skipped line 3" in result.output
    assert result.output.endswith("2 lines skipped\n")
    assert [one["value"] for one in stored(anabranch, "skipped", *at)] == ["1", "4"]


def test_refused_record_is_counted(servers: str, anabranch: Command) -> None:
    at = ("--bootstrap-servers", servers)
    assert anabranch("topics", "create", "small", "--config", "max.message.bytes=1000", *at).exit_code == 0
    result = anabranch("produce", "small", "x" * 2000, *at)
    assert result.exit_code == 1
    assert "1 records were not stored: MESSAGE_TOO_LARGE" in result.output.replace("Error: ", "")


def test_contradictory_options_are_refused(anabranch: Command) -> None:
    for words, reason in [
        (("--json", "--separator", ":"), "--json and --separator are mutually exclusive"),
        (("--null", "value"), "--null sends one record, and reads no lines: leave out VALUES"),
        (("--null", "--json", "--skip-bad"), "leave out --json, --skip-bad"),
        (("--header", "h"), "NAME=VALUE"),
        (("--acks", "2"), "'2' is not one of"),
    ]:
        result = anabranch("produce", "t", *words)
        assert (result.exit_code, reason in result.output) == (2, True), result.output


def test_unreachable_cluster_is_explained(anabranch: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NetworkConfig.__init__.__kwdefaults__, "bootstrap_timeout_ms", 300)
    result = anabranch("produce", "t", "x", "--bootstrap-servers", "127.0.0.1:1")
    assert result.exit_code == 1
    assert "is a cluster running at 127.0.0.1:1?" in result.output
