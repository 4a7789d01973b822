"""Groups of other projects' consumers under faults, judged by what they wrote down; and what the judge notices."""

from __future__ import annotations

import json
import logging
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from anabranch.chaos.__main__ import main
from anabranch.chaos.faults import Fired
from anabranch.chaos.history import Send
from anabranch.chaos.members import MemberFailed, MemberGroup
from anabranch.chaos.run import Plan, chaos, report

log = logging.getLogger(__name__)

MEMBERS = Path(__file__).parents[2] / "examples/members"
PATIENCE_S = 300.0


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


def test_in_order_and_all_of_it_is_good(tmp_path: Path) -> None:
    one = group(tmp_path, row(0, 0, 0), row(1, 0, 1), row(0, 0, 0), row(1, 0, 1), row(2, 3, 0))
    assert one.missing(SENDS) == []
    assert list(one.judge(SENDS)) == []
    assert one.told() == "g: 3 records, 2 handed out again, 0 members killed, 0 ended by themselves"


def test_a_child_before_its_parent_is_noticed(tmp_path: Path) -> None:
    one = group(tmp_path, row(0, 0, 0), row(2, 3, 0), row(1, 0, 1))
    assert one.missing(SENDS) == []
    assert list(one.judge(SENDS)) == ["g: B1 key-order: k/1 at orders-0@1 was first delivered after k/2"]


def test_what_nobody_was_handed_is_noticed(tmp_path: Path) -> None:
    one = group(tmp_path, row(0, 0, 0), row(2, 3, 0))
    assert one.missing(SENDS) == ["k/1"]
    assert list(one.judge(SENDS)) == ["g: 1 acknowledged records were handed to nobody, such as ['k/1']"]


def test_half_a_line_is_read_when_it_is_whole(tmp_path: Path) -> None:
    one = group(tmp_path, row(0, 0, 0))
    line = json.dumps(row(1, 0, 1))
    with one.file.open("a") as file:
        file.write(line[:10])
        file.flush()
        assert one.missing(SENDS) == ["k/1", "k/2"]
        file.write(line[10:] + "\n")
    assert one.missing(SENDS) == ["k/2"]


@pytest.mark.parametrize("line", ["{}", "nonsense", '{"key": "k", "sequence": "first", "partition": 0, "offset": 0}'])
def test_a_line_that_makes_no_sense_is_told_with_its_number(tmp_path: Path, line: str) -> None:
    with pytest.raises(MemberFailed, match=r"g\.jsonl:2 is not a delivery"):
        group(tmp_path, row(0, 0, 0), line).look()


@pytest.mark.processes
@pytest.mark.parametrize(
    ("command", "told"),
    [
        (python("-c", "raise SystemExit('no such option')"), "ends each time and writes nothing: no such option"),
        ("no-such-program", "no-such-program cannot be run"),
    ],
    ids=["it ends", "there is none"],
)
async def test_a_command_that_gets_nowhere_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, told: str
) -> None:
    monkeypatch.setattr("anabranch.chaos.members.AGAIN_S", 0.0)
    one = MemberGroup("g", command, "127.0.0.1:1", tmp_path)
    tasks = one.tasks()
    with pytest.raises(MemberFailed, match=told):
        await tasks[0]
    await one.stop(tasks)


def enough(fired: Sequence[Fired]) -> bool:
    return sum(one.name == "kill a stock member" for one in fired) >= 2 and len({one.name for one in fired}) >= 4


@pytest.mark.processes
@pytest.mark.zookeeper
async def test_stock_groups_keep_the_order_of_keys_while_a_topic_grows(tmp_path: Path) -> None:
    """Goal: librdkafka by both protocols and aiokafka are handed every record, and each key's in their order.

    Method: their members and the nodes are killed, frozen and cut off while records flow and the topic grows.
    """
    members = {
        "librdkafka": python(MEMBERS / "librdkafka.py", "classic"),
        "librdkafka-848": python(MEMBERS / "librdkafka.py", "consumer"),
        "aiokafka": python(MEMBERS / "aio.py"),
    }
    faults = ("kill", "freeze", "kill a stock member", "kill the controller", "reset connections", "isolate")
    plan = Plan(
        duration_s=20,
        enough=enough,
        seed=932,
        pace_s=2.5,
        resize_every_s=4,
        faults=faults,
        patience_s=PATIENCE_S,
        members=members,
    )
    verdict = await chaos(plan, say=log.info, directory=tmp_path, kafka="4.1")
    table = "\n".join(report(verdict))
    assert not verdict.anomalies, table
    assert enough(verdict.fired), table
    assert verdict.record.resizes, table
    for one in verdict.members:
        assert len({delivery.place for delivery in one.deliveries}) > 3, table


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--ungated"], "--ungated is about the groups that --member names"),
        (["--login", "--member", "mine=true"], "a member is told no password"),
        (["--member", "mine=true", "--member", "mine=false"], "two groups have one name"),
    ],
    ids=["no group", "no password", "one name"],
)
def test_what_cannot_be_judged_is_refused(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--duration", "1", *words]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("text", ["mine", "mine=", "a b=true", "=true"])
def test_a_member_is_a_name_and_a_command(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--member", text])
    assert "is not GROUP=COMMAND" in capsys.readouterr().err
