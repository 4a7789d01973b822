"""The cause line is found in Spark's wrapped exceptions."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.spark_jobs.audit import Target
from anabranch.spark_jobs.scope import Scope
from anabranch.spark_jobs.service import AuditService, CannotAudit, cause, claim, execute

WRAPPED = """\
[STREAM_FAILED] Query [id = 5b63] terminated with exception: An exception was raised by the Python Proxy.
Traceback (most recent call last):
  File "audit.py", line 98, in write
pyspark.errors.exceptions.captured.PythonException: An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "range_reader.py", line 167, in _lose
{}

 SQLSTATE: XXKST
"""


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        ("anabranch.spark_jobs.range_reader.LostRecords: t-1 is gone", "LostRecords: t-1 is gone"),
        ("anabranch.protocol.errors.DecodeError: not an audit event", "DecodeError: not an audit event"),
        ("ValueError: no", "ValueError: no"),
    ],
)
def test_exception_of_a_worker_is_found(raised: str, told: str) -> None:
    assert cause(WRAPPED.format(raised)) == told


def test_audit_topic_is_not_about_itself(tmp_path: Path) -> None:
    with pytest.raises(CannotAudit, match="t cannot be both the audit topic and the topic that it is about"):
        claim(Target("127.0.0.1:1", "t", tmp_path, Scope("t")))


def test_message_without_exception_is_reported_unchanged() -> None:
    assert cause("nothing is as it was\nand more") == "nothing is as it was"


@pytest.mark.parametrize("groups", ['"billing"', "7", "[7]", "null"])
def test_groups_of_a_command_are_a_list(groups: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The letters of a name would be groups that get nothing: everything would be lost."""
    service = AuditService(None, "127.0.0.1:1", tmp_path)  # type: ignore[arg-type]
    execute(service, f'{{"audit": "t", "expect": "e", "groups": {groups}}}')
    assert 'groups is a list such as [\\"billing\\"]' in capsys.readouterr().out
