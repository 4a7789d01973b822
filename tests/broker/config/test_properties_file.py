"""A properties file is read as in Java; options override it."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.broker.config.broker_settings import ConfigError
from anabranch.broker.config.properties_file import parse_properties, properties_in, properties_of, properties_text

FILE = r"""
# a comment
! another
a=1
b : two
c three = 3
  d.e =  spaces kept inside
long = first \
    second \
    third
path = C:\\temp
sign = \u00e9\t!
empty =
f=a=b:c
"""


def test_comments_and_continued_lines_are_parsed() -> None:
    assert properties_in(FILE) == {
        "a": "1",
        "b": "two",
        "c": "three = 3",
        "d.e": "spaces kept inside",
        "long": "first second third",
        "path": "C:\\temp",
        "sign": "é\t!",
        "empty": "",
        "f": "a=b:c",
    }


def test_options_override_the_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=3\nbroker.rack=a\n")
    assert properties_of(str(path), ["num.partitions=4"]) == {"num.partitions": "4", "broker.rack": "a"}
    assert properties_of(None, []) == {}
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        properties_of(str(tmp_path / "none"), [])


@pytest.mark.parametrize(
    "text", ["", "plain", " at both ends ", "a=b:c # d", "! \\ \\u00e9", "\u00e9 \u20ac \U0001f511", "two\nlines\t"]
)
def test_written_properties_are_parsed_back(text: str) -> None:
    assert properties_in(properties_text({"a.b": text, "c": text})) == {"a.b": text, "c": text}


def test_options_are_parsed_as_name_value_pairs() -> None:
    assert parse_properties(("a=1", "b = x=y ")) == {"a": "1", "b": "x=y"}
    with pytest.raises(ConfigError, match="write NAME=VALUE"):
        parse_properties(("num.partitions",))
