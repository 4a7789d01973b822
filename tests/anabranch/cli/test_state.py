"""`anabranch state` resets a cluster, saves it to a file, and starts from the file."""

from __future__ import annotations

import json
from pathlib import Path

from tests.anabranch.cli.conftest import Command
from tests.running import running

UP = ("up", "--port", "0", "--control", "127.0.0.1:0")


def test_state_is_saved_and_restored(anabranch: Command, tmp_path: Path) -> None:
    from anabranch.control.client import ControlClient

    def state(*words: str) -> str:
        result = anabranch("state", *words, "--control", url)
        assert result.exit_code == 0, result.output
        return result.output

    file = str(tmp_path / "seeded.zip")
    with running(*UP, "--brokers", "2") as ready:
        url = ready["control"]
        control = ControlClient(url)
        control.create_topic("orders", 2)
        assert state("take", "seeded") == ""
        assert state("list").startswith("seeded ") and state("list").endswith("  1,2\n")
        state("reset")
        assert control.state()["topics"] == []
        state("restore", "seeded")
        assert len(control.state()["topics"]) == 1
        ready = dict(one.split("=", 1) for one in state("fork", "seeded").split()[2:])
        assert len(ControlClient(ready["control"]).state()["topics"]) == 1
        unwritable = anabranch("state", "save", "seeded", str(tmp_path / "missing" / "f"), "--control", url)
        assert (unwritable.exit_code, unwritable.output.count("\n")) == (1, 1)
        assert "f: No such file or directory" in unwritable.output
        state("save", "seeded", file)
        state("remove", "seeded")
        state("load", "again", file)
        assert state("list").startswith("again ") and json.loads(state("list", "--json"))["snapshot"] == "again"
    with running(*UP, "--from", file) as ready:
        url = ready["control"]
        found = ControlClient(url).state()
        assert [len(found["nodes"]), [one["topic"] for one in found["topics"]]] == [2, ["orders"]]


def test_unsuitable_snapshots_are_refused(anabranch: Command, tmp_path: Path) -> None:
    from anabranch.state.snapshot import Snapshot

    file, wrong = tmp_path / "two.zip", tmp_path / "wrong.zip"
    file.write_bytes(Snapshot("", {1: {}, 2: {}}, frozenset()).to_bytes())
    wrong.write_bytes(b"x")
    for words, reason in [
        (("--from", str(file), "--brokers", "3"), "the snapshot has brokers (1, 2)"),
        (("--from", str(wrong)), "not a snapshot"),
        (("--from", str(tmp_path / "none")), "No such file"),
        (("--from", str(file), "--data-dir", str(tmp_path)), "unzip"),
        (("--from", str(file), "--processes", "--zookeeper", "local"), "--from needs a cluster in one process"),
    ]:
        result = anabranch("up", *words)
        assert (result.exit_code, reason in result.output) == (2, True), result.output
