"""Jute reads what it writes, and never more than there is."""

from __future__ import annotations

import pytest

from anabranch.controller.zk.server import jute
from anabranch.controller.zk.server.jute import JuteReader, MalformedRequest


def test_values_are_read_as_written() -> None:
    reader = JuteReader(
        jute.integer(-5) + jute.text("grün") + jute.buffer(b"\0\xff") + jute.texts(["a", ""]) + b"\0" * 7 + b"\x09\1"
    )
    assert (reader.integer(), reader.text(), reader.buffer()) == (-5, "grün", b"\0\xff")
    assert (reader.texts(), reader.long(), reader.boolean(), reader.left) == (["a", ""], 9, True, 0)


def test_null_is_read_as_empty() -> None:
    reader = JuteReader(jute.integer(-1) * 3)
    assert (reader.text(), reader.buffer(), reader.texts()) == ("", b"", [])


def test_lengths_beyond_the_message_are_refused() -> None:
    for read in (JuteReader.text, JuteReader.buffer, JuteReader.texts):
        with pytest.raises(MalformedRequest):
            read(JuteReader(jute.integer(2**31 - 1) + b"/a"))
    for read in (JuteReader.integer, JuteReader.long, JuteReader.boolean):
        with pytest.raises(MalformedRequest):
            read(JuteReader(b""))
