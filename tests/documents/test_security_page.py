"""Each set-up of the security page is short; `test_blocks.py` runs them."""

from __future__ import annotations

from tests.documents.blocks import blocks
from tests.documents.made import ROOT

PAGE = (ROOT / "docs" / "security.md").read_text()
LINES_MAX = 10
IMPORTS_AND_LOOP_MAX = 10


def test_security_set_ups_are_short() -> None:
    shown = [one for one in blocks(PAGE) if one.language in ("console", "properties", "python")]
    assert len([one for one in shown if "$ anabranch up" in one.code]) >= 5
    limits = [(one, LINES_MAX + IMPORTS_AND_LOOP_MAX * (one.language == "python")) for one in shown]
    assert [one.line for one, limit in limits if one.code.count("\n") > limit] == []
