"""The site's navigation names every page, and MkDocs finds each link and anchor."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases import for_each
from tests.documents import links
from tests.documents.made import ROOT

LOADED = re.compile(r'<(?:script[^>]* src|link[^>]* rel="stylesheet" href)="([^"?/][^"?]*)"')
INDEX = ROOT / "docs/README.md"
FOREIGN = re.compile(r'<(?:script|img|iframe)[^>]* src="?https?://|<link[^>]* rel="?(?:stylesheet|preconnect)[^>]*//')


def test_index_names_every_page() -> None:
    named = {(INDEX.parent / link.partition("#")[0]).resolve() for link in links.LINK.findall(INDEX.read_text())}
    decisions = set((ROOT / "docs/decisions").glob("d*.md"))
    unnamed = set(links.pages(ROOT)) - named - decisions - {INDEX}
    assert sorted(one.relative_to(ROOT).as_posix() for one in unnamed) == [], "give each a row in docs/README.md"


def test_strict_build_passes_and_loads_nothing_from_other_hosts(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="needs the extra site: pip install -e '.[site]'")
    command = (sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path))
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    pages = {one.relative_to(tmp_path).as_posix(): one.read_text() for one in tmp_path.rglob("*.html")}
    assert {"index.html", "DESIGN/index.html", "docs/reference/index.html"} <= pages.keys()
    assert [name for name, text in pages.items() if FOREIGN.search(text)] == []
    absent = {
        one
        for name, text in pages.items()
        for one in LOADED.findall(text)
        if not (tmp_path / name / ".." / one).resolve().exists()
    }
    assert absent == set()
    undrawn = [name for name, text in pages.items() if 'class="mermaid"' in text and "mermaid.tiny.js" not in text]
    assert undrawn == [], "Material loads a renderer of diagrams from another host, unless the page has one"


@for_each(links.pages(ROOT))
def test_tables_and_nested_lists_have_portable_syntax(page: Path) -> None:
    """A table needs a header, and MkDocs nests lists only with an indentation of four columns."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert [one.partition("\n")[0] for one in tables if not re.match(r".*\n\|[-:| ]+\|\n", one)] == []
    assert re.findall(r"^ {1,3}[-*] .*", text, re.MULTILINE) == []
    assert re.findall(r"^[^\n|].*\n\|.*", text, re.MULTILINE) == [], "a table needs an empty line above it"
