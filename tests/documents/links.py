"""Links between pages, their anchors, and files that pages name."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.documents.folder_map import heading

LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FILE: Final = re.compile(r"`([\w./-]+\.(?:py|toml|md|json|txt|yml))`")
OTHERS: Final = frozenset({"pytest.ini"})


def pages(root: Path) -> list[Path]:
    """Every page."""
    return sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md")])


@functools.cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page: its headings, and explicit marks."""
    text = page.read_text()
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ +(.+)$", prose, re.MULTILINE)
    return frozenset(
        {heading(re.sub(r"<[^>]*>|`", "", one)) for one in headings} | set(re.findall(r'<a id="([^"]+)"', text))
    )


def broken(page: Path) -> Iterator[str]:
    """The links of a page that lead nowhere."""
    for target in LINK.findall(re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            yield target


def missing_files(page: Path, root: Path, known: frozenset[str]) -> Iterator[str]:
    """The files that a page names and that are not there. A name alone may be anywhere."""
    for name in FILE.findall(page.read_text()):
        if not (root / name).exists() and not any(one.endswith("/" + name) for one in known) and name not in OTHERS:
            yield name
