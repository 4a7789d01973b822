"""Copies of a chaos run are judged, and copiers copy exactly once while processes are killed (see `test_run`)."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from anabranch.chaos.copiers import CopiedTopic
from anabranch.chaos.faults import Fired
from anabranch.chaos.history import Send
from anabranch.chaos.plan import Plan
from anabranch.chaos.run import chaos
from anabranch.chaos.verdict import report
from anabranch.clients.security import SecurityArguments

log = logging.getLogger(__name__)

SENDS = [Send(number, "w", "k", number, f"k/{number}", "ok", ("orders", 0), number) for number in range(12)]


def judged(*numbers: int, sends: Sequence[Send] = SENDS) -> list[str]:
    topic = CopiedTopic("", lambda _: random.Random(1), members=1, access=SecurityArguments())
    topic.output.rows = [("k", f"k/{number}") for number in numbers]
    return list(topic.judge(sends))


def test_copy_of_each_record_in_order_is_no_violation() -> None:
    assert judged(*range(12)) == []


def test_record_without_a_copy_is_a_violation_if_it_was_acknowledged() -> None:
    assert judged(*range(11)) == ["copies: k/11 has no output"]
    unknown = Send(11, "w", "k", 11, "k/11")
    assert judged(*range(11), sends=[*SENDS[:11], unknown]) == []


def test_second_copy_is_a_violation() -> None:
    assert judged(*range(12), 11) == ["copies: k/11 has 2 outputs"]


def test_copy_behind_a_later_one_of_its_key_is_a_violation() -> None:
    assert judged(*range(9), 10, 9, 11) == ["copies: the output of k/9 is behind that of k/10"]


def enough(fired: Sequence[Fired]) -> bool:
    names = [one.name for one in fired]
    return names.count("crash a copier") >= 2 and names.count("kill") >= 2


@pytest.mark.costly
@pytest.mark.processes
@pytest.mark.zookeeper
async def test_copiers_copy_each_record_once_while_processes_are_killed(tmp_path: Path) -> None:
    plan = Plan(
        duration_s=12,
        enough=enough,
        seed=5,
        pace_s=1.5,
        copiers=2,
        resize_every_s=6,
        faults=("kill", "crash a copier", "expire a session"),
        patience_s=300,
    )
    verdict = await chaos(plan, say=log.info, directory=tmp_path)
    table = "\n".join(report(verdict))
    assert not verdict.anomalies, table
    [copied] = verdict.sides
    assert isinstance(copied, CopiedTopic) and copied.output.rows, table
