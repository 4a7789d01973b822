"""`anabranch journal` shows, filters and follows exchanges."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.anabranch.cli.conftest import Command
from tests.running import running


@pytest.fixture(scope="module")
def told() -> Iterator[dict[str, str]]:
    words = ["--control", "127.0.0.1:0", "--control-journal", "50"]
    with running("up", "--brokers", "1", "--port", "0", *words) as ready:
        yield ready


def test_exchanges_are_shown(told: dict[str, str], anabranch: Command) -> None:
    url = told["control"]
    anabranch("topics", "create", "orders", "--bootstrap-servers", told["bootstrap"])
    assert anabranch("journal", "--control", url).exit_code == 0
    anabranch("topics", "create", "orders", "--bootstrap-servers", told["bootstrap"])
    shown = anabranch("journal", "api=CreateTopics", "topic=orders", "--control", url).output.splitlines()
    assert len(shown) == 2 and "CreateTopics v" in shown[0] and shown[1].endswith("TOPIC_ALREADY_EXISTS")
    (row,) = [
        json.loads(one)
        for one in anabranch("journal", "error=TOPIC_ALREADY_EXISTS", "--json", "--control", url).output.splitlines()
    ]
    assert row["request"]["topics"][0]["name"] == "orders" and row["outcome"] == "answered"
    why = anabranch("journal", "explain", str(row["number"]), "--control", url).output
    assert "CreateTopics v" in why and "was refused with TOPIC_ALREADY_EXISTS for orders" in why
    gone = anabranch("journal", "explain", "99999", "--control", url)
    assert gone.exit_code == 1 and "no exchange 99999 is kept" in gone.output
    assert "explain needs the number of one exchange" in anabranch("journal", "explain", "--control", url).output
    refused = anabranch("journal", "topics=a", "--control", url)
    assert refused.exit_code == 1 and "unknown filters: topics" in refused.output
    assert anabranch("journal", "orders", "--control", url).exit_code == 2


def test_journal_requires_a_control_plane(anabranch: Command) -> None:
    refused = anabranch("up", "--control-journal", "5")
    assert refused.exit_code == 2 and "--control-journal needs --control" in refused.output


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--capture", "f", "--follow"), "leave out --json and --follow"),
        (("--capture", "f", "--json"), "leave out --json and --follow"),
        (("explain", "4", "--json"), "explain prints lines"),
        (("explain", "4", "--capture", "f"), "explain prints lines"),
    ],
)
def test_options_without_effect_are_refused(words: tuple[str, ...], reason: str, anabranch: Command) -> None:
    refused = anabranch("journal", *words)
    assert (refused.exit_code, reason in refused.output) == (2, True), refused.output
