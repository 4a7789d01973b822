"""Recorded requests are sent to another cluster; the exit status says whether responses are equal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anabranch.testing.clusters import Clusters
from tests.anabranch.cli.conftest import Command


def test_capture_and_json_lines_are_replayed_to_other_clusters(anabranch: Command, tmp_path: Path) -> None:
    path, lines = tmp_path / "said.pcapng", tmp_path / "said.jsonl"
    with Clusters() as clusters:
        with clusters.running(1, journal=100, frames=True) as first:
            for _ in range(2):
                anabranch("topics", "create", "orders", "--bootstrap-servers", first.bootstrap_servers)
            first.journal.save(path)
            url = first.control._url
            lines.write_text(anabranch("journal", "--json", "--bytes", "--control", url).output)
            assert anabranch("journal", "--bytes", "--control", url).exit_code == 2
        with clusters.running(1) as second:
            done = anabranch("replay", str(path), "--to", second.bootstrap_servers, "--pace", "100x")
            assert done.exit_code == 0 and ", 0 different" in done.output, done.output
            again = anabranch("replay", str(lines), "--to", second.bootstrap_servers)
            assert again.exit_code == 1, "the topic is there already"
            assert "CreateTopics v" in again.output and "topics[0].error_code was 0, is 36" in again.output
            rows = anabranch("replay", str(lines), "--to", second.bootstrap_servers, "--json").output.splitlines()
            assert {"path": "topics[0].error_code", "then": 0, "now": 36} in [
                one for row in map(json.loads, rows) for one in row["differences"]
            ]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nowhere",), "No such file"),
        (("{empty}",), "the file has no exchanges with bytes; write one with"),
        (("{said}", "--pace", "steps"), "write 1x"),
        (("{said}", "--pace", "fast"), "1x, 10x"),
    ],
)
def test_unplayable_recording_is_refused_in_one_line(
    words: tuple[str, ...], says: str, anabranch: Command, tmp_path: Path
) -> None:
    (tmp_path / "empty").write_text("")
    said = {"number": 1, "at": 0, "ms": 1, "node": 1, "peer": "h:1", "bytes": {"request": "AAAA", "response": ""}}
    (tmp_path / "said").write_text(json.dumps(said))
    given = [one.format(empty=tmp_path / "empty", said=tmp_path / "said") for one in words]
    result = anabranch("replay", *given, "--to", "127.0.0.1:1")
    assert result.exit_code != 0 and says in result.output and "Traceback" not in result.output
