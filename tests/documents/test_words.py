"""Retired names do not return, and the glossary has one sentence for each term."""

from __future__ import annotations

import re
from pathlib import Path

from tests.documents.retired import RETIRED

ROOT = Path(__file__).parents[2]
SUFFIXES = (".py", ".md", ".js", ".toml", ".yml")
SKIPPED = frozenset({"CHANGELOG.md", "tests/documents/retired.py"})
RETIRED_NAME = re.compile(r"\b(" + "|".join(RETIRED) + r")\b")
ROW = re.compile(r"^\| (?:<a id=\"[a-z-]+\"></a>)?(\*{0,2}[A-Za-z][^|]*?) \| (.+) \|$", re.MULTILINE)
CODE = ("src/anabranch", "broker", "clients", "controller", "protocol", "spark_jobs", "chaos")
RIDDLE = re.compile(
    r"\b(who asks|whoever asks|in the hands? of|takes? back|without a word|looks? again|hears? of it|"
    r"nobody knows|stands? in the way|of which nobody|what there is|who does what)\b",
    re.IGNORECASE,
)
"""Phrases that pages had in place of the field's words."""
GENERATED = frozenset({"map.md", "reference.md", "checkers.md"})
TOPS = (*CODE, "benchmarks", "tests", "docs", "examples")


def sources() -> list[Path]:
    """Every page and source file of this checkout, links and vendored files left out."""
    files = [one for top in TOPS for one in (ROOT / top).rglob("*") if one.suffix in SUFFIXES]
    files += [one for one in ROOT.iterdir() if one.suffix in SUFFIXES]
    return [
        one
        for one in files
        if one.relative_to(ROOT).as_posix() not in SKIPPED
        and not any(part in ("vendor", "node_modules") for part in one.parts)
        and one.resolve() == one
    ]


def written_pages() -> list[Path]:
    """The pages of docs/ that people write, with the two that lead to them."""
    pages = [one for one in (ROOT / "docs").rglob("*.md") if one.name not in GENERATED]
    return [ROOT / "DESIGN.md", ROOT / "CONTRIBUTING.md", *sorted(pages)]


def test_no_retired_name_is_used() -> None:
    found = {
        f"{path.relative_to(ROOT).as_posix()}: {match} is {RETIRED[match]}"
        for path in sources()
        for match in RETIRED_NAME.findall(path.read_text(errors="replace"))
    }
    assert not found, "\n".join(sorted(found))


def test_broker_has_no_loose_modules() -> None:
    assert [one.name for one in (ROOT / "broker").glob("*.py")] == ["__init__.py"]


def test_every_package_has_a_docstring() -> None:
    silent = [
        one.relative_to(ROOT).as_posix()
        for top in CODE
        for one in (ROOT / top).rglob("__init__.py")
        if not one.read_text().startswith('"""')
    ]
    assert silent == []


def test_glossary_has_one_sentence_for_each_term() -> None:
    rows = [row for row in ROW.findall((ROOT / "docs/glossary.md").read_text()) if row[0] != "term"]
    terms = [term for term, _ in rows]
    assert len(terms) >= 60
    assert len(set(terms)) == len(terms)
    assert [term for term, meaning in rows if not meaning.endswith(".") or ". " in meaning] == []


def test_pages_contain_no_banned_phrases() -> None:
    """As CONTRIBUTING.md asks: readers understand each sentence at once."""
    found = [
        f"{page.relative_to(ROOT).as_posix()}: {riddle}"
        for page in written_pages()
        for riddle in RIDDLE.findall(
            re.sub(r"^```.*?^```|<!-- (\w+): begin.*?end -->|`[^`]*`", "", page.read_text(), flags=re.M | re.S)
        )
    ]
    assert found == []


def sentences(page: Path) -> list[str]:
    """The sentences of a page outside code, tables and headings. A list after a colon counts by itself."""
    text = re.sub(r"^```.*?^```|^[|#].*?$|\]\([^)]*\)", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    paragraphs = re.split(r"\n\s*\n|\n\s*[-*] |\n\s*\d+\. ", text)
    return [one for part in paragraphs for one in re.split(r"(?<=[.!?:;])\s+(?=[A-Z`*\[(])", part)]


def test_sentences_of_pages_are_short() -> None:
    lengths = [len(one.split()) for page in written_pages() for one in sentences(page)]
    assert sum(length > 30 for length in lengths) < len(lengths) / 20, "write sentences of at most 25 words"
