"""Columns are aligned with their headings."""

from __future__ import annotations

from anabranch.cli.table import table_lines


def test_numbers_are_aligned_to_the_right_and_text_to_the_left() -> None:
    assert table_lines(["name", "count", "state"], [["a-long-name", 1200, "up"], ["b", None, "stopping"]]) == [
        "name         count  state",
        "a-long-name  1,200  up",
        "b                -  stopping",
    ]


def test_a_table_without_rows_has_no_headings() -> None:
    assert table_lines(["name"], []) == []
