"""Pages escape all outside text."""

from __future__ import annotations

from anabranch.report import page
from anabranch.report.page import BAD, Card

EVIL = "<script>alert('1')</script>"


def test_external_text_is_escaped_in_html() -> None:
    made = page.page(
        EVIL,
        [
            page.headline(EVIL, EVIL, EVIL, BAD),
            page.cards([Card(EVIL, EVIL)]),
            page.section(EVIL, EVIL, page.table([EVIL], [[EVIL]]), page.definitions([(EVIL, EVIL)])),
            page.collapsible(EVIL, ""),
        ],
        footer=EVIL,
    )
    assert EVIL not in made
    assert made.count("&lt;script&gt;") == 14


def test_numbers_are_right_aligned_and_text_left_aligned() -> None:
    made = page.table(["name", "count"], [["a", 1234567], ["b", None]], marked=[1])
    assert "<th>name</th><th class='n'>count</th>".replace("'", "") in made.replace("'", "")
    assert "<td>a</td><td class=n>1,234,567</td>" in made
    assert "<tr class=mark><td>b</td><td class=n>-</td>" in made
