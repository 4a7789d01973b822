"""The generated pages and parts of pages, as they must be now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from anabranch.chaos.checkers import CHECKERS
from anabranch.chaos.checkers.invariants import INVARIANTS, LIVENESS, PROGRESS
from anabranch.faults.rule import FIELDS, HINTS
from tests.contracts.rules import table
from tests.documents import folder_map, reference
from tests.documents.labels import linked

ROOT: Final = Path(__file__).resolve().parents[2]
RESIZE: Final = "docs/resize.md"
HAND_MADE: Final = "`make docs` generates this page from the docstrings; change it there."


def between(name: str, drawn: str, text: str) -> str:
    """The text with this between its two marks. ValueError if it has none."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found or not found_end:
        raise ValueError(f"there is no place for {name}: {begin} ... {end}")
    return f"{before}{begin}\n\n{drawn}\n\n{end}{after}"


def anchor(label: str) -> str:
    """What `#r1` leads to."""
    return f'<a id="{label.lower().replace(chr(39), "-durable")}"></a>'


def invariants() -> Iterator[str]:
    """The table of invariants, each with its checkers."""
    yield "| invariant | text | checked by |"
    yield "|---|---|---|"
    for one in INVARIANTS:
        label = one.name.partition(" ")[0]
        names = (name.partition(" ")[0] for name in one.checkers)
        held = ", ".join(f"[{name}](checkers.md#{name.lower()})" for name in names)
        yield f"| {anchor(label)}{one.name} | {one.says} | {held} |"


def fields() -> Iterator[str]:
    """The table of the fields of a fault rule."""
    yield "| field | meaning |"
    yield "|---|---|"
    for field in FIELDS:
        kind = "flag" if HINTS[field.name] is bool else ""
        choices = ", ".join(f"`{one}`" for one in field.metadata["one_of"]) or kind
        text = field.metadata["help"].replace("*", "\\*")
        yield f"| {field.metadata['part']}: `{field.name}` | {text}{f' ({choices})' if choices else ''} |"


def checkers() -> Iterator[str]:
    """The page of checkers."""
    yield "# Checkers"
    yield ""
    yield (
        "The checkers examine the history of a simulated schedule or of a run of real processes. A description without "
        f"a subject is about a record. {HAND_MADE}"
    )
    for module in dict.fromkeys(check.__module__ for check in CHECKERS.values()):
        yield ""
        yield f"## {module.rpartition('.')[2].replace('_', ' ').capitalize()}"
        yield ""
        yield "| checker | finds |"
        yield "|---|---|"
        for name, check in CHECKERS.items():
            if check.__module__ == module:
                says = " ".join((check.__doc__ or "").split()).replace("|", "\\|")
                yield f"| {anchor(name.partition(' ')[0])}{name} | {linked(says)} |"
    yield ""
    yield "## Progress"
    yield ""
    label = PROGRESS.partition(" ")[0]
    yield (
        f"{anchor(label)}**{PROGRESS}**: after all faults are repaired, the run waits until every replica is in sync, "
        "every requested change is carried out, and every record is delivered and committed. The checker reports what "
        "did not happen in time."
    )
    yield ""
    yield (
        f"{anchor(LIVENESS.partition(' ')[0])}**{LIVENESS}**: when all faults are repaired and writers have "
        "stopped, a reader without a group reads the topic from the log starts. Every group, classic or KIP-848, must "
        "receive each of these records. The checker reports records that a group did not receive in time, and what its "
        "members wait for. It leaves out records that were deleted whether groups had read them or not."
    )


def resize() -> str:
    """Return docs/resize.md with its rules and invariants."""
    page = between("rules", "\n".join(table()), (ROOT / RESIZE).read_text())
    return between("invariants", "\n".join(invariants()), page)


MADE: Final[dict[str, Callable[[], str]]] = {
    "DESIGN.md": lambda: between("folders", folder_map.folders(ROOT), (ROOT / "DESIGN.md").read_text()),
    "docs/map.md": lambda: folder_map.page(ROOT, HAND_MADE),
    "docs/reference.md": lambda: reference.page(HAND_MADE),
    "docs/checkers.md": lambda: "\n".join(checkers()) + "\n",
    "docs/faults.md": lambda: between("fields", "\n".join(fields()), (ROOT / "docs/faults.md").read_text()),
    RESIZE: resize,
}
"""What makes each page, by the page's path from the root. Parsing every module takes seconds: only on demand."""
