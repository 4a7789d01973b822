"""`anabranch faults` adds, lists, awaits and removes rules; impossible rules get a one-line error."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.anabranch.cli.conftest import Command
from tests.running import running


@pytest.fixture
def faults(url: str, anabranch: Command):  # type: ignore[no-untyped-def]
    def run(*words: str, code: int = 0) -> str:
        result = anabranch("faults", *words, "--control", url)
        assert result.exit_code == code, result.output
        return result.output

    yield run
    run("remove", "--all")


def test_rules_are_added_listed_and_removed(faults, url: str, anabranch: Command) -> None:  # type: ignore[no-untyped-def]
    words = "--api Produce --topic orders --partition 1 --error NOT_LEADER_OR_FOLLOWER --times 2"
    assert faults("add", *words.split()) == "rule-1\n"
    assert faults("add", "--name", "slow", "--api", "CreateTopics", "--delay-ms", "1", "--delay-ms", "2") == "slow\n"
    edit = ["--edit", "controller_id=7", "--edit", "topics[*].name=a = b"]
    assert faults("add", "--api", "Metadata", *edit, "--after", "9") == "rule-2\n"
    rows = json.loads(faults("list", "--json"))
    assert [one["name"] for one in rows] == ["rule-1", "slow", "rule-2"]
    assert rows[0]["rule"] == {
        "name": "rule-1", "api": ["Produce"], "topic": ["orders"], "partition": [1], "times": 2,
        "error": "NOT_LEADER_OR_FOLLOWER",
    }  # fmt: skip
    assert rows[1]["rule"]["delay_ms"] == [1.0, 2.0]
    assert rows[2]["rule"]["edit"] == {"controller_id": 7, "topics[*].name": "a = b"}
    lines = faults("list").splitlines()
    said = "api=Produce topic=orders partition=1 times=2 error=NOT_LEADER_OR_FOLLOWER"
    assert " ".join(lines[0].split()) == f"rule-1 0 of 0 hit: {said}"
    assert faults("remove", "rule-1") == "rule-1 has hit 0 of 0 requests\n"


@pytest.mark.parametrize(
    ("option", "reason"), [("--every", "every is at least 1, not 0"), ("--probability", "probability must be above 0")]
)
def test_zero_is_a_given_number(faults, option: str, reason: str) -> None:  # type: ignore[no-untyped-def]
    """It was taken for a missing option, and the rule hit every request."""
    assert reason in faults("add", "--api", "ListGroups", "--delay-ms", "1", option, "0", code=1)


def test_rule_is_awaited_and_released(faults, url: str, anabranch: Command) -> None:  # type: ignore[no-untyped-def]
    faults("add", "--name", "gate", "--api", "ListGroups", "--hold")
    servers = json.loads(anabranch("control", "state", "--control", url).output)["nodes"]
    address = f"{servers[0]['host']}:{servers[0]['port']}"
    words = [sys.executable, "-m", "anabranch.cli.main", "groups", "list", "--bootstrap-servers", address]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        faults("wait", "gate", "--timeout", "60")
        assert re.search(r", holds [123]: api=ListGroups hold", faults("list"))
        assert process.poll() is None
        faults("release", "gate")
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("add", "--api", "Produced", "--hold"), 1, "unknown API 'Produced'; did you mean Produce"),
        (("add", "--api", "Produce"), 1, "the rule has no action; the actions are"),
        (("add", "--api", "Metadata", "--edit", "x"), 2, "--edit takes PATH=VALUE"),
        (("wait", "nobody"), 1, "there is no rule nobody; there are none"),
        (("remove",), 2, "name one rule, or write --all"),
    ],
)
def test_invalid_rules_are_explained(faults, words: tuple[str, ...], code: int, reason: str) -> None:  # type: ignore[no-untyped-def]
    assert reason in faults(*words, code=code)


def test_rule_from_file_freezes_a_broker_without_a_control_plane(anabranch: Command, tmp_path: Path) -> None:
    """It was accepted, and the request that it hit was a bug of the broker."""
    path = tmp_path / "rules.json"
    path.write_text(json.dumps([{"api": "DescribeConfigs", "brokers": 1, "node": "freeze", "on": 2}]))
    with running("up", "--brokers", "2", "--port", "0", "--rules", str(path)) as ready:
        first, second = ready["bootstrap"].split(",")
        assert anabranch("health", first).exit_code == 0
        assert "no response" in anabranch("health", second).output


def test_rules_from_file_apply_from_start(anabranch: Command, tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[[rules]]\nname = "no"\napi = "ListGroups"\nerror = "COORDINATOR_NOT_AVAILABLE"\ntimes = 1\n')
    words = ["up", "--brokers", "1", "--port", "0", "--control", "127.0.0.1:0", "--rules", str(path)]
    with running(*words) as ready:
        anabranch("groups", "list", "--bootstrap-servers", ready["bootstrap"])
        assert anabranch("faults", "wait", "no", "--control", ready["control"]).exit_code == 0
        assert '"kind": "fault"' in anabranch("control", "events", "--json", "--control", ready["control"]).output
    path.write_text("[[rules]]\nhold = true\nbrokers = 5\n")
    refused = anabranch("up", "--rules", str(path))
    assert refused.exit_code == 2 and "there is no broker 5; there are 1, 2, 3" in refused.output
    missing = anabranch("up", "--rules", str(tmp_path / "nothing.json"))
    assert missing.exit_code == 2 and "No such file" in missing.output
