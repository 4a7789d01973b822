"""Numbers of a Streams application in a chaos run are judged; it numbers exactly once while processes are killed."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from anabranch.chaos.cluster import LOGIN
from anabranch.chaos.faults import Fired
from anabranch.chaos.history import Send
from anabranch.chaos.numbered_topic import NumberedTopic
from anabranch.chaos.plan import Plan
from anabranch.chaos.run import chaos
from anabranch.chaos.verdict import report
from anabranch.clients.security import SecurityArguments

log = logging.getLogger(__name__)

SENDS = [Send(number, "w", "k", number, f"k/{number}", "ok", ("orders", 0), number) for number in range(3)]


def numbered(directory: Path, properties: Mapping[str, str]) -> NumberedTopic:
    return NumberedTopic("", directory, instances=1, access=SecurityArguments(), client_properties=properties)


def judged(directory: Path, *values: str) -> list[str]:
    topic = numbered(directory, {})
    topic.output.rows = [("k", value) for value in values]
    return list(topic.judge(SENDS))


def test_numbers_without_a_gap_are_no_violation(tmp_path: Path) -> None:
    assert judged(tmp_path, "1|k/0", "2|k/1", "3|k/2") == []


def test_store_that_lost_a_step_is_a_violation(tmp_path: Path) -> None:
    assert judged(tmp_path, "1|k/0", "2|k/1", "2|k/2") == ["numbered: k/2 has number 2, and the output before it 2"]


def test_store_that_counted_a_record_twice_is_a_violation(tmp_path: Path) -> None:
    assert judged(tmp_path, "1|k/0", "3|k/1", "4|k/2") == ["numbered: k/1 has number 3, and the output before it 1"]


def test_record_without_a_number_is_a_violation(tmp_path: Path) -> None:
    assert judged(tmp_path, "1|k/0", "2|k/1") == ["numbered: k/2 has no output"]


def test_record_with_two_numbers_is_a_violation(tmp_path: Path) -> None:
    assert judged(tmp_path, "1|k/0", "2|k/1", "3|k/2", "4|k/2") == ["numbered: k/2 has 2 outputs"]


def test_instances_get_the_login_in_a_file_and_not_as_a_word(tmp_path: Path) -> None:
    words = numbered(tmp_path, {"sasl.jaas.config": "secret"})._command("127.0.0.1:1", 0)
    assert words[-2:] == ["--command-config", str(tmp_path / "client.properties")] and "secret" not in " ".join(words)


def enough(fired: Sequence[Fired]) -> bool:
    names = [one.name for one in fired]
    return names.count("kill a Streams instance") >= 2 and names.count("kill") >= 1


@pytest.mark.costly
@pytest.mark.processes
@pytest.mark.zookeeper
async def test_application_numbers_each_record_once_while_processes_are_killed(tmp_path: Path) -> None:
    """The instances log in, and their log has no password."""
    plan = Plan(
        duration_s=12,
        enough=enough,
        seed=6,
        pace_s=1.5,
        instances=2,
        resize_every_s=6,
        faults=("kill", "kill a Streams instance", "freeze a Streams instance"),
        patience_s=300,
    )
    verdict = await chaos(plan, say=log.info, directory=tmp_path, login=True)
    table = "\n".join(report(verdict))
    assert not verdict.anomalies, table
    [side] = verdict.sides
    assert isinstance(side, NumberedTopic) and side.output.rows, table
    assert LOGIN["sasl_plain_password"] not in side.processes.log.read_text()
