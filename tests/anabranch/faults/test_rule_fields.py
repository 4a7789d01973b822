"""Type checkers know the arguments of public classes, and the fields of rules, journal filters and wait conditions."""

from __future__ import annotations

import json
import subprocess
import sys
import typing
from pathlib import Path

import pytest

from anabranch.control import wait_conditions
from anabranch.faults.rule import FIELDS
from anabranch.faults.rule_fields import RuleFields
from anabranch.journal import query

ROOT = Path(__file__).parents[3]
THEIR_TEST = """\
from anabranch import Admin, Cluster, Consumer, NewTopic, Producer
from anabranch.testing import Rule
from anabranch.testing import EventRow, ExchangeRow, GroupRow, NodeRow, RuleFields, RuleRow, RunningCluster, TopicRow

SLOW: RuleFields = {"api": "Produce", "delay_ms": 500}

def leaders(topic: TopicRow) -> list[int]:
    return [partition["leader"] for partition in topic["partitions"]]

def test_rows(anabranch: RunningCluster) -> None:
    state = anabranch.control.state()
    topic, node, group = state["topics"][0], state["nodes"][0], state["groups"][0]
    rows: tuple[TopicRow, NodeRow, GroupRow] = (topic, node, group)
    exchange: ExchangeRow = anabranch.journal.entries()[0]
    rules: list[RuleRow] = anabranch.faults.rows()
    events: list[EventRow] = anabranch.control.events()
    assert leaders(topic) and exchange["errors"] == [] and rules[0]["hits"] and events[0]["kind"]
    anabranch.faults.add(**SLOW)
    topic["partition"]  # no such field
    rules[0]["hits"] + "times"  # a number

def test_theirs(anabranch: RunningCluster) -> None:
    with anabranch.faults(api="Produce", delay_ms=500, disconnect="middle", optional=True) as rule:
        hits: int = rule.hits
    anabranch.faults.add(api=["Produce", "Fetch"], delay_ms=[5, 10.5], partition=0)
    anabranch.journal.count(api="Fetch", outcome="open")
    anabranch.wait_for(topic="orders", isr="2+", controller="any")
    anabranch.nodes[2].kill()
    anabranch.faults(api="Produce", delay=500)  # no such field
    anabranch.faults.add(api="Produce", disconnect="close")  # no such value
    anabranch.journal.entries(partition="0")  # a number
    anabranch.wait_for(topics="orders")  # no such condition

async def made(admin: Admin) -> tuple[NewTopic, Cluster, Rule, list[str]]:
    topic, cluster, rule = NewTopic(name="orders", partitions=3), Cluster(3, properties={}), Rule(delay_ms=(5,))
    await admin.create_topics([topic], validate_only=True)
    names = await admin.list_topics(include_internal=True)
    NewTopic(name="orders", partition=3)  # no such argument
    Cluster(propertys={})  # no such argument
    Rule(delay=5)  # no such field
    Producer("a:1", lingerms=3)  # no such argument
    Consumer("orders", groupid="g")  # no such argument
    await admin.create_topics([topic], validate=True)  # no such argument
    return topic, cluster, rule, names
"""


def test_every_rule_field_is_typed() -> None:
    assert typing.get_type_hints(RuleFields).keys() == {field.name for field in FIELDS}
    for field in FIELDS:
        if field.metadata["one_of"]:
            assert typing.get_args(typing.get_type_hints(RuleFields)[field.name]) == field.metadata["one_of"]
    assert typing.get_type_hints(query.JournalFilter).keys() == query.WORDS.keys()
    assert typing.get_type_hints(wait_conditions.WaitCondition).keys() == wait_conditions.WORDS.keys()


WRONG_LINES = [number for number, line in enumerate(THEIR_TEST.splitlines(), 1) if "  # " in line]


def test_mypy_accepts_valid_fields_and_refuses_others(tmp_path: Path) -> None:
    """In its own process: mypy changes the garbage collector's thresholds."""
    (tmp_path / "test_theirs.py").write_text(THEIR_TEST)
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", str(tmp_path / "test_theirs.py")],
        cwd=ROOT,  # its cache is there
        capture_output=True,
        text=True,
        timeout=300,
    )
    lines = [int(line.split(":")[1]) for line in ran.stdout.splitlines() if ": error:" in line]
    assert (sorted(set(lines)), ran.returncode, ran.stderr) == (WRONG_LINES, 1, ""), ran.stdout


def test_pyright_accepts_valid_fields_and_refuses_others(tmp_path: Path) -> None:
    pytest.importorskip("basedpyright", reason="NOT TRIED WITH PYRIGHT: pip install -e '.[pyright]'")
    (tmp_path / "test_theirs.py").write_text(THEIR_TEST)
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    ran = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--outputjson", "test_theirs.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    found = json.loads(ran.stdout)["generalDiagnostics"]
    lines = [one["range"]["start"]["line"] + 1 for one in found if one["severity"] == "error"]
    assert sorted(set(lines)) == WRONG_LINES, ran.stdout + ran.stderr
