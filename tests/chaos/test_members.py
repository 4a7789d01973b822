"""Groups of other consumers under faults, checked by their delivery logs."""

from __future__ import annotations

import json
import logging
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from anabranch.chaos.__main__ import main
from anabranch.chaos.faults import Fired
from anabranch.chaos.history import Send
from anabranch.chaos.members import InvalidDelivery, MemberGroup
from anabranch.chaos.plan import Plan
from anabranch.chaos.run import FIRST_COUNT, chaos
from anabranch.chaos.verdict import report

log = logging.getLogger(__name__)

MEMBERS = Path(__file__).parents[2] / "examples/members"
PATIENCE_S = 300.0
BY_HAND = pytest.mark.skipif(
    not os.environ.get("ANABRANCH_INTEROP"), reason="THE CONTROL'S OTHER HALF IS NOT RUN: set ANABRANCH_INTEROP"
)


def python(*words: object) -> str:
    return shlex.join(map(str, (sys.executable, *words)))


def group(directory: Path, *rows: object) -> MemberGroup:
    one = MemberGroup("g", "true", "", directory)
    one.file.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return one


def row(sequence: int, partition: int, offset: int) -> dict[str, object]:
    return {"key": "k", "sequence": sequence, "partition": partition, "offset": offset}


def sent(sequence: int) -> Send:
    return Send(sequence, "w", "k", sequence, f"k/{sequence}", outcome="ok", place=("orders", 0), offset=sequence)


SENDS = [sent(0), sent(1), sent(2)]


def test_complete_ordered_deliveries_have_no_anomaly(tmp_path: Path) -> None:
    one = group(tmp_path, row(0, 0, 0), row(1, 0, 1), row(0, 0, 0), row(1, 0, 1), row(2, 3, 0))
    assert one.missing(SENDS) == []
    assert list(one.judge(SENDS)) == []
    assert one.summary() == "g: 3 records, 2 delivered again, 0 members killed, 0 ended by themselves"


def test_child_before_its_parent_is_an_anomaly(tmp_path: Path) -> None:
    one = group(tmp_path, row(0, 0, 0), row(2, 3, 0), row(1, 0, 1))
    assert one.missing(SENDS) == []
    assert list(one.judge(SENDS)) == ["g: B1 key-order: k/1 at orders-0@1 was first delivered after k/2"]


def test_undelivered_record_is_an_anomaly(tmp_path: Path) -> None:
    one = group(tmp_path, row(0, 0, 0), row(2, 3, 0))
    assert one.missing(SENDS) == ["k/1"]
    assert list(one.judge(SENDS)) == ["g: 1 acknowledged records were not delivered, such as ['k/1']"]


def test_key_order_is_required_until_topic_shrinks(tmp_path: Path) -> None:
    one = group(tmp_path, row(1, 0, 1), row(0, 1, 0), row(2, 0, 2))
    one.look()
    assert list(one.judge(SENDS, {"k/0", "k/1", "k/2"})) == [] and one.unordered == 1
    assert one.summary().endswith(", 1 out of the order of their key behind a merge")
    assert list(one.judge(SENDS, {"k/1", "k/2"})) == [] and one.unordered == 1
    assert list(one.judge(SENDS, {"k/2"})) == ["g: B1 key-order: k/0 at orders-1@0 was first delivered after k/1"]
    assert one.unordered == 0


def test_partition_order_is_always_required(tmp_path: Path) -> None:
    one = group(tmp_path, row(0, 0, 0), row(2, 0, 2), row(0, 0, 0), row(1, 0, 1), row(2, 0, 2))
    one.look()
    assert list(one.judge(SENDS, {"k/0", "k/1", "k/2"})) == [
        "g: partition order: k/1 at orders-0@1 was first delivered after offset 2"
    ]


def test_partial_line_is_read_when_complete(tmp_path: Path) -> None:
    one = group(tmp_path, row(0, 0, 0))
    line = json.dumps(row(1, 0, 1))
    with one.file.open("a") as file:
        file.write(line[:10])
        file.flush()
        assert one.missing(SENDS) == ["k/1", "k/2"]
        file.write(line[10:] + "\n")
    assert one.missing(SENDS) == ["k/2"]


@pytest.mark.parametrize("line", ["{}", "nonsense", '{"key": "k", "sequence": "first", "partition": 0, "offset": 0}'])
def test_malformed_line_is_reported_with_its_number(tmp_path: Path, line: str) -> None:
    with pytest.raises(InvalidDelivery, match=r"g\.jsonl:2 is not a delivery"):
        group(tmp_path, row(0, 0, 0), line).look()


def enough(fired: Sequence[Fired]) -> bool:
    return sum(one.name == "kill a stock member" for one in fired) >= 2 and len({one.name for one in fired}) >= 4


MIXED = Plan(
    duration_s=12,
    enough=enough,
    seed=932,
    pace_s=2.5,
    resize_every_s=4,
    faults=(
        "kill",
        "freeze",
        "kill a stock member",
        "freeze a stock member",
        "kill the controller",
        "break connections",
        "isolate",
    ),
    patience_s=PATIENCE_S,
    members={
        "librdkafka": python(MEMBERS / "librdkafka.py", "classic"),
        "librdkafka-848": python(MEMBERS / "librdkafka.py", "consumer"),
        "aiokafka": python(MEMBERS / "aio.py"),
    },
)


@pytest.mark.costly
@pytest.mark.processes
@pytest.mark.zookeeper
async def test_stock_groups_keep_key_order_while_topic_grows(tmp_path: Path) -> None:
    """librdkafka with both protocols, and aiokafka, while members and nodes are killed, frozen and cut off."""
    verdict = await chaos(MIXED, say=log.info, directory=tmp_path, kafka="4.1")
    table = "\n".join(report(verdict))
    assert not verdict.anomalies, table
    assert enough(verdict.fired), table
    assert verdict.record.resizes, table
    for one in verdict.members:
        assert len({delivery.place for delivery in one.deliveries}) > 3, table


@BY_HAND
@pytest.mark.processes
@pytest.mark.zookeeper
async def test_stock_groups_lose_nothing_while_topic_shrinks(tmp_path: Path) -> None:
    """Every record is delivered, and each partition is in order. Kills delay members, so some keys lose their order
    after a merge: the run counts them as a control.
    """
    plan = replace(MIXED, shrinks=True, duration_s=40)
    verdict = await chaos(plan, say=log.info, directory=tmp_path, kafka="4.1")
    table = "\n".join(report(verdict))
    log.info("%s", table)
    counts = [FIRST_COUNT, *(count for _, _, count in verdict.record.resizes)]
    assert any(after < before for before, after in pairwise(counts)), table
    assert not verdict.anomalies and enough(verdict.fired), table
    assert sum(one.unordered for one in verdict.members) > 0, table


@pytest.mark.costly
@pytest.mark.processes
@pytest.mark.zookeeper
@pytest.mark.parametrize("gated", [False, pytest.param(True, marks=BY_HAND)], ids=["gates off", "gates on"])
async def test_group_that_reads_newest_first_needs_gates(tmp_path: Path, gated: bool) -> None:
    """The control: without gates a run finds keys out of order."""
    grown = FIRST_COUNT + 3

    def has_read(_: Sequence[Fired]) -> bool:
        return lines.is_file() and lines.stat().st_size > 0

    lines = tmp_path / "members" / "late.jsonl"
    plan = Plan(
        duration_s=0,
        enough=has_read,
        pace_s=0.5,
        readers=1,
        rate=50,
        resize_every_s=1,
        faults=("replace a consumer",),
        patience_s=PATIENCE_S,
        members={"late": python(Path(__file__).with_name("newest_first.py"), grown)},
        gated=gated,
    )
    verdict = await chaos(plan, say=log.info, directory=tmp_path, kafka="4.1")
    table = "\n".join(report(verdict))
    out_of_order = [line for line in verdict.anomalies if line.startswith("late: B1 key-order")]
    assert bool(out_of_order) != gated, table
    assert out_of_order == verdict.anomalies, table


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--ungated"], "--ungated needs --member"),
        (["--shrink"], "--shrink needs --member"),
        (["--login", "--member", "mine=true"], "members get no password"),
        (["--member", "mine=true", "--member", "mine=false"], "duplicate group"),
    ],
    ids=["no group", "no group that would mind", "no password", "one name"],
)
def test_unsupported_member_options_are_refused(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--duration", "1", *words]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("text", ["mine", "mine=", "a b=true", "=true"])
def test_member_is_a_name_and_a_command(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--member", text])
    assert "is not GROUP=COMMAND" in capsys.readouterr().err
