"""The files of a data directory: Kafka's formats, and the effects of damage."""

from __future__ import annotations

import json

import pytest

from anabranch.broker.storage.checkpoints import (
    OffsetCheckpoint,
    decode_checkpoint,
    encode_checkpoint,
    mark_clean_shutdown,
    take_clean_shutdown,
)
from anabranch.broker.storage.memory_files import MemoryFiles


def test_checkpoint_format_equals_kafkas() -> None:
    content = encode_checkpoint({("b-topic", 1): 7, ("a", 10): 0})
    assert content == b"0\n2\nb-topic 1 7\na 10 0\n"
    assert decode_checkpoint(content) == {("a", 10): 0, ("b-topic", 1): 7}


@pytest.mark.parametrize("content", [b"", b"0\n", b"0\n2\na 1 5\n", b"1\n0\n", b"0\n1\na one 5\n", b"\xff\xfe"])
def test_damaged_checkpoint_is_ignored_at_the_start(content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    files = MemoryFiles()
    files.write_file("offsets", content)
    checkpoint = OffsetCheckpoint(files, "offsets")
    checkpoint.read()
    assert checkpoint.offsets == {}
    assert "offsets is damaged" in caplog.text
    checkpoint.put(("a", 1), 5)
    checkpoint.write()
    assert files.read_file("offsets") == b"0\n1\na 1 5\n"


def test_unchanged_checkpoint_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFiles()
    written: list[bytes] = []
    monkeypatch.setattr(files, "write_file", lambda _, content, flushed: written.append(content))
    checkpoint = OffsetCheckpoint(files, "offsets")
    checkpoint.read()
    checkpoint.write()
    assert written == [], "nothing to say"
    for offset in (1, 1, 2):
        checkpoint.put(("a", 0), offset)
        checkpoint.write()
    checkpoint.drop(("a", 0))
    checkpoint.drop(("b", 0))
    checkpoint.write()
    assert written == [b"0\n1\na 0 1\n", b"0\n1\na 0 2\n", b"0\n0\n"]


def test_clean_shutdown_mark_is_consumed_once() -> None:
    files = MemoryFiles()
    assert not take_clean_shutdown(files)
    mark_clean_shutdown(files, 17)
    assert json.loads(files.read_file(".kafka_cleanshutdown") or b"") == {"version": 0, "brokerEpoch": 17}
    assert take_clean_shutdown(files)
    assert not take_clean_shutdown(files)
