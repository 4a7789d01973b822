"""JSON logs have one object per line in every process of a cluster."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys

import click
import pytest

from anabranch.runtime.logging_setup import VARIABLE, JsonLines, configure_logs


def line(message: str, *arguments: object, error: BaseException | None = None) -> dict[str, str]:
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    record = logging.LogRecord("anabranch.broker.network.server", logging.WARNING, "", 0, message, arguments, exc_info)
    record.created = 1795477496.783
    text = JsonLines().format(record)
    assert "\n" not in text
    row: dict[str, str] = json.loads(text)
    return row


def test_log_record_is_one_json_object() -> None:
    assert line("closing %s:\n%r", "1.2.3.4", b"\xff") == {
        "time": "2026-11-23T23:44:56.783+00:00",
        "level": "warning",
        "logger": "anabranch.broker.network.server",
        "message": "closing 1.2.3.4:\nb'\\xff'",
    }
    try:
        raise ValueError("oops")
    except ValueError as error:
        assert line("bug", error=error)["traceback"].endswith("ValueError: oops")


def test_unknown_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "xml")
    with pytest.raises(click.UsageError, match="is text or json, not 'xml'"):
        configure_logs("info")


def test_cluster_logs_json() -> None:
    words = [sys.executable, "-m", "anabranch.cli.main", "up", "--brokers", "1", "--port", "0", "--log-level", "info"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, VARIABLE: "json"}
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().startswith("ready")
        process.terminate()
        rows = [json.loads(one) for one in process.stderr]
    assert any(one["logger"].startswith("anabranch.") and one["level"] == "info" for one in rows)
