"""The judge as a command, on a topic that was resized twice."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from anabranch.clients.topic_admin import NewTopic
from anabranch.judge.__main__ import main
from anabranch.testing.running_cluster import RunningCluster
from tests.anabranch.judge.conftest import COUNTS, ResizedTopic

Lines = list[dict[str, object]]


def rows(path: Path) -> Lines:
    return [json.loads(line) for line in path.read_text().splitlines()]


def written(path: Path, lines: Lines) -> str:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return str(path)


def judge(resized: ResizedTopic, *words: str) -> int:
    return main(["--bootstrap-servers", resized.servers, "--topic", resized.name, *words])


def test_resized_topic_and_deliveries_in_order_pass(
    resized: ResizedTopic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    handed = written(tmp_path / "handed.jsonl", rows(resized.sent))
    counts = ",".join(map(str, COUNTS))
    assert judge(resized, "--counts", counts, "--sent", str(resized.sent), "--deliveries", handed) == 0
    assert (
        capsys.readouterr().out
        == "180 records of 12 keys stored; 180 delivered, 0 of them again\nPASSED: no violation\n"
    )


def test_wrong_history_makes_records_misplaced(resized: ResizedTopic, capsys: pytest.CaptureFixture[str]) -> None:
    assert judge(resized, "--counts", "2") == 1
    assert "x misplaced" in capsys.readouterr().out


def test_shuffled_and_missing_deliveries_are_found(
    resized: ResizedTopic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = rows(resized.sent)
    random.Random(1).shuffle(lines)
    assert judge(resized, "--deliveries", written(tmp_path / "handed.jsonl", lines[:-1])) == 1
    shown = capsys.readouterr().out
    assert "x delivered out of order" in shown
    assert "1 x never delivered" in shown


def test_acknowledged_record_that_is_not_stored_is_lost(
    resized: ResizedTopic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = {"key": "key-1", "sequence": 99, "partition": 0, "offset": 5000}
    assert judge(resized, "--sent", written(tmp_path / "stored.jsonl", [lost])) == 1
    assert "lost: key key-1: number 99 was acknowledged at 0@5000 and is not there" in capsys.readouterr().out


def test_empty_topic_that_had_acknowledged_records_has_lost_them(
    anabranch_cluster: RunningCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    anabranch_cluster.admin.create_topics([NewTopic(name="emptied", partitions=1)])
    lost = written(tmp_path / "stored.jsonl", [{"key": "k", "sequence": 0, "partition": 0, "offset": 0}])
    words = ["--bootstrap-servers", anabranch_cluster.bootstrap_servers, "--topic", "emptied"]
    assert main([*words, "--sent", lost]) == 1
    assert capsys.readouterr().out.endswith("lost: key k: number 0 was acknowledged at 0@0 and is not there\nFAILED\n")
    assert main(words) == 2


@pytest.mark.parametrize("counts", ["0", "4,0", "-4", "4;8", "4,,8"])
def test_impossible_counts_are_refused(counts: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--topic", "orders", f"--counts={counts}"])
    assert "write N,N,... with numbers from 1" in capsys.readouterr().err


def test_without_anything_to_judge_there_is_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert capsys.readouterr().err == "no verdict: nothing is stored, and nothing was delivered\n"
