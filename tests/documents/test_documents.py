"""Generated pages are fresh, links and labels are valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from anabranch.chaos.checkers import CHECKERS
from tests.cases import for_each
from tests.documents import labels, links
from tests.documents.made import MADE, RESIZE, ROOT, between
from tests.model.runs import RUNS
from tests.sim.defects import DEFECTS
from tests.sim.planted import PLANTS

DOCS = ROOT / "docs"
PAGES = links.pages(ROOT)
SOURCES = (
    "protocol",
    "clients",
    "controller",
    "broker",
    "spark_jobs",
    "chaos",
    "src",
    "tests",
    "benchmarks",
    "examples",
)
FILES = frozenset(one.as_posix() for top in (*SOURCES, "docs") for one in (ROOT / top).rglob("*.*"))
PYTHON = sorted(Path(one) for one in FILES if one.endswith(".py"))
STORIES = sorted((ROOT / "tests").rglob("scenarios/*.txt"))


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("name", MADE)
def test_generated_parts_are_up_to_date(name: str) -> None:
    assert (ROOT / name).read_text() == MADE[name](), "run `make docs`"


@for_each(PAGES)
def test_every_link_has_a_target(page: Path) -> None:
    assert list(links.broken(page)) == []


@for_each(PAGES)
def test_every_file_named_in_a_page_exists(page: Path) -> None:
    assert list(links.missing_files(page, ROOT, FILES)) == []


@pytest.fixture(scope="module")
def lines() -> list[tuple[str, str]]:
    """Every line in which labels are meant as such, behind its place."""
    return [
        (f"{place(path)}:{number}", line) for path in (*PYTHON, *STORIES, *PAGES) for number, line in labels.prose(path)
    ]


def known_labels() -> frozenset[str]:
    """All defined labels, by page."""
    homes = (DOCS / "resize.md", DOCS / "checkers.md", DOCS / "decisions" / "README.md")
    return frozenset(one.upper() for page in homes for one in links.anchors(page) if re.fullmatch(r"[a-z]\d+", one))


def test_every_label_is_defined(lines: list[tuple[str, str]]) -> None:
    known = known_labels()
    assert {"R1", "R21", "I0", "I15", "K101", "K806", "D1", "D26", "L1"} <= known
    assert {name.partition(" ")[0] for name in CHECKERS} <= known
    assert [f"{at}: {label}" for at, line in lines for label in labels.labels(line) if label not in known] == []


def test_no_line_refers_to_a_missing_document(lines: list[tuple[str, str]]) -> None:
    assert [f"{at}: {line.strip()}" for at, line in lines if labels.FOREIGN.search(line)] == []


def defect_rows() -> dict[str, set[str]]:
    """Each defect of docs/resize.md, with how it is shown."""
    rows = re.findall(r'^\| <a id="(k\d+)"></a>.*\|\s*([^|]*?)\s*\|$', (ROOT / RESIZE).read_text(), re.MULTILINE)
    return {label.upper(): set(shown.replace(",", " ").split()) for label, shown in rows}


def test_defects_are_planted_and_modelled_where_the_page_says_so() -> None:
    rows = defect_rows()
    planted = {one for defect in DEFECTS.values() for one in re.findall(r"K\d+", defect.items)}
    modelled = {one for runs in RUNS.values() for run in runs for one in re.findall(r"K\d+", run.name)}
    assert {label for label, shown in rows.items() if "planted" in shown} == planted
    assert {label for label, shown in rows.items() if "model" in shown} == modelled


def test_tables_list_every_planted_bug() -> None:
    text = (DOCS / "simulation.md").read_text()
    bugs, _, defects = text.partition("## Defects of resizes")
    rows = re.findall(r"^\| (.+?) \| \d+(?: aimed)? \| .+ \|$", bugs, re.MULTILINE)
    assert set(rows) == set(PLANTS)
    rows = re.findall(r"^\| (.+?) \| (.+?) \| \d+(?: aimed)? \| .+ \|$", defects, re.MULTILINE)
    assert {name: items for items, name in rows} == {name: one.items for name, one in DEFECTS.items()}


def test_wire_table_lists_every_tag() -> None:
    declared = {
        (name, number)
        for path in (ROOT / "protocol/apis").glob("*.py")
        for name, number in re.findall(r"^    (\w+): .*= tagged\((25\d\d),", path.read_text(), re.MULTILINE)
    }
    rows = re.findall(r"^\| `(\w+)`.* \| (25\d\d) \|$", (DOCS / "wire.md").read_text(), re.MULTILINE)
    assert set(rows) == declared


def test_introduction_is_shorter_than_4000_words() -> None:
    assert len((ROOT / "DESIGN.md").read_text().split()) < 4000


def test_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="no place for folders"):
        between("folders", "x", "nothing")


def test_labels_are_distinguished_from_similar_words() -> None:
    assert labels.labels("rules R9-R11 (K601, I4') and B1 key-order") == ["R9", "R11", "K601", "I4", "B1"]
    assert labels.labels("LZ4, P0 -> P1, %C3, `A1`, 'B2', C3.py, v1, KIP-253") == []


def test_names_in_code_tours_are_in_the_source() -> None:
    source = "\n".join(path.read_text() for path in PYTHON if "tests" not in path.relative_to(ROOT).parts)
    text = "".join((ROOT / name).read_text() for name in ("docs/code-tours.md", "CONTRIBUTING.md"))
    walked = re.findall(r"`([A-Z]\w+)(?:\.(\w+))?`", text)
    drawn = [(name, "") for name in re.findall(r"\w\[([A-Z]\w+)(?=[:\]<])", (ROOT / "DESIGN.md").read_text())]
    assert len(walked) > 10
    for name, member in (*walked, *drawn):
        assert re.search(rf"^(class {name}\b|{name}\b.* = )", source, re.MULTILINE), name
        assert not member or re.search(rf"^    (async )?def {member}\(", source, re.MULTILINE), f"{name}.{member}"


def test_high_watermark_is_changed_by_its_own_replica_only() -> None:
    """As in the second code tour: by `Partition`, called by `ReplicaManager` and fetchers."""

    def users(what: str) -> set[str]:
        source = (ROOT / "broker").rglob("*.py")
        return {path.stem for path in source if re.search(what, path.read_text())}

    assert users(r"\w\.high_watermark = ") == {"partition", "fetch_sessions"}, "a session keeps what it told last"
    assert users(r"\.advance_high_watermark\(") == {"partition", "replica_manager"}
    assert users(r"\.follow_high_watermark\(") == {"follower_log"}


def test_labels_become_links_in_text() -> None:
    text = "rule R9, `R8`, [R7](x), decision D9"
    assert labels.linked(text) == ("rule [R9](resize.md#r9), `R8`, [R7](x), decision [D9](decisions/README.md#d9)")
