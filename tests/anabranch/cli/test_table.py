"""Columns are aligned with their headings."""

from __future__ import annotations

from anabranch.cli.table import table_lines


def test_numbers_are_right_aligned_and_text_left_aligned() -> None:
    assert table_lines(["name", "count", "state"], [["a-long-name", 1200, "up"], ["b", None, "stopping"]]) == [
        "name         count  state",
        "a-long-name  1,200  up",
        "b                -  stopping",
    ]


def test_table_without_rows_has_no_headings() -> None:
    assert table_lines(["name"], []) == []
