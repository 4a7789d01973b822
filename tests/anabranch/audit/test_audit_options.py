"""Conflicting options are refused by name; other options take effect."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from anabranch.cli.audit import ALWAYS_PASSED, OF_SUBMISSION, command


def refused(*words: str) -> str:
    done = CliRunner().invoke(command, list(words))
    assert done.exit_code == 2, done.output
    return done.output


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "name the audit topic"),
        (
            ("--topic", "t", "--follow", "--backfill"),
            "--follow cannot be combined with --backfill, --replay or --serve",
        ),
        (("--topic", "t", "--expect", "t"), "--expect t is the audit topic; name the topic whose records"),
        (("--topic", "t", "--copy", "x"), "--copy needs --backfill"),
        (("--topic", "t", "--backfill", "--copy", "."), "already exists; name a new directory"),
        (("--topic", "t", "--backfill", "--replay", "."), "leave --backfill out"),
        (("--topic", "t", "--backfill", "--metrics-port", "0"), "--metrics-port and --violations-to need a stream"),
        (("--topic", "t", "--group", "g"), "--group needs --expect: the topic whose records these groups must get"),
        (("--serve", "--isolation-level", "read_uncommitted"), "--serve is told with each audit"),
        (("--topic", "t", "--conf", "spark.executor.memory"), "write NAME=VALUE"),
        (("--topic", "t", "--replay", "absent"), "does not exist"),
        (("--topic", "t", "--command-config", "absent"), "--command-config absent:"),
        (("--sent", "."), "is a directory"),
        (("--deliveries", "absent.jsonl"), "absent.jsonl: there is no such file"),
        (("--sent", __file__), "--sent needs --deliveries"),
        (
            ("--deliveries", __file__, "--topic", "t"),
            "--deliveries reads no topics: leave out --topic, --expect, --group, --serve",
        ),
        (
            ("--package", "absent", "--serve"),
            "--package cannot be combined with --serve: a submitted job has no standard input",
        ),
    ],
)
def test_invalid_options_are_refused(words: tuple[str, ...], why: str) -> None:
    assert why in refused(*words)


def test_package_prints_its_submit_command(tmp_path: Path) -> None:
    words = [
        "--package",
        str(tmp_path),
        "--topic",
        "t",
        "--expect",
        "e",
        "--follow",
        "--master",
        "yarn",
        "--group",
        "g",
    ]
    done = CliRunner().invoke(command, [*words, "--conf", "spark.executor.memory=2g"])
    assert done.exit_code == 0, done.output
    archive, job = tmp_path / "anabranch-audit.zip", tmp_path / "anabranch-audit.py"
    assert archive.exists() and job.exists()
    assert done.output.strip() == (
        f"PYTHONPATH={archive} spark-submit --conf spark.executor.memory=2g --master yarn --py-files {archive} {job} "
        "--bootstrap-servers 127.0.0.1:9092 --topic t --expect e --group g --out out/audit --follow"
    )


@pytest.mark.parametrize(
    "words",
    [
        "--topic t --follow --violations-to v --metrics-port 9465 --metrics-host 0.0.0.0 --source kafka --allow-empty",
        "--topic t --expect e --group g --group h --backfill --copy absent",
        "--replay {tmp_path} --events {tmp_path}/events --no-fail-on-data-loss",
    ],
)
def test_packaged_job_gets_every_option(tmp_path: Path, words: str) -> None:
    (tmp_path / "events").touch()
    words = words.format(tmp_path=tmp_path)
    done = CliRunner().invoke(command, ["--package", str(tmp_path / "job"), *words.split()])
    assert done.exit_code == 0, done.output
    output = shlex.split(done.output)
    its = output[output.index(str(tmp_path / "job" / "anabranch-audit.py")) + 1 :]
    assert sorted(its) == sorted(f"--bootstrap-servers 127.0.0.1:9092 --out out/audit {words}".split())
    given = {option.name: option for option in command.params}
    assert set(OF_SUBMISSION | ALWAYS_PASSED) <= set(given)


def test_directory_without_copy_is_refused_in_one_line(tmp_path: Path) -> None:
    assert "has no copy of an audit" in refused("--replay", str(tmp_path))
