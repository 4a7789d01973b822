"""Lines of recorded deliveries."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.judge.records import Delivery, InvalidLine, parse_lines, read_lines


def test_line_is_a_delivery(tmp_path: Path) -> None:
    file = tmp_path / "handed.jsonl"
    file.write_text(
        '{"key": "42", "sequence": 1, "partition": 3, "offset": 91, "member": "m", "group_generation": 7}\n'
    )
    assert list(read_lines(file)) == [Delivery(3, 91, b"42", 1, "m", 7)]


def test_file_is_the_member_where_none_is_named() -> None:
    (one,) = parse_lines(['{"key": "42", "sequence": 1, "partition": 3, "offset": 91}'], "handed.jsonl")
    assert (one.member, one.generation) == ("handed.jsonl", -1)


def test_producer_is_read_unless_one_numbers_each_key() -> None:
    line = '{"key": "42", "sequence": 1, "partition": 3, "offset": 91, "producer": "p"}'
    assert [one.stream for one in parse_lines([line], "handed.jsonl")] == [(b"42", "p")]
    assert [one.stream for one in parse_lines([line], "handed.jsonl", producers=False)] == [(b"42", "")]


def test_line_that_is_not_utf_8_is_refused_with_its_number(tmp_path: Path) -> None:
    file = tmp_path / "handed.jsonl"
    file.write_bytes(b'{"key": "\xff", "sequence": 1, "partition": 3, "offset": 91}\n')
    with pytest.raises(InvalidLine, match=r"handed\.jsonl:1: UnicodeDecodeError"):
        list(read_lines(file))


def test_key_may_be_null_or_not_utf_8() -> None:
    place = '"sequence": 1, "partition": 3, "offset": 91'
    found = parse_lines([f'{{"key": null, {place}}}', f'{{"key": "\\udcff", {place}}}'], "handed.jsonl")
    assert [(one.key, one.stream) for one in found] == [(None, (3, "")), (b"\xff", (b"\xff", ""))]


@pytest.mark.parametrize(
    "line", ["{", "[]", "7", '{"key": "k"}', '{"key":"k","sequence":"x","partition":0,"offset":0}']
)
def test_invalid_line_is_refused_with_its_number(line: str) -> None:
    good = '{"key": "42", "sequence": 1, "partition": 3, "offset": 91}'
    with pytest.raises(InvalidLine, match=r"^handed\.jsonl:2: "):
        list(parse_lines([good, line], "handed.jsonl"))
