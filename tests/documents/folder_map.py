"""The map of the source: each folder and module with the first sentence of its docstring."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.documents.labels import linked

TOPS: Final = ("src/anabranch", "chaos", "broker", "controller", "clients", "spark_jobs", "protocol")
"""From the top of the layers down."""


def sentence(path: Path) -> str:
    """The first sentence of a module's docstring."""
    head = path.read_text().partition("\nfrom __future__")[0]  # to parse what follows would take seconds
    doc = ast.get_docstring(ast.parse(head)) or ""
    text = " ".join(doc.partition("\n\n")[0].split())
    found = re.match(r"(.+?[.?!]\)?)(?= +[A-Z`(]|$)", text)
    return (found.group(1) if found else text).replace("|", "\\|")


def packages(root: Path) -> Iterator[Path]:
    """Every folder with modules, each before those in it. Links lead to folders that are listed themselves."""

    def below(folder: Path) -> Iterator[Path]:
        yield folder
        for one in sorted(folder.iterdir()):
            if one.is_dir() and not one.is_symlink() and (one / "__init__.py").exists():
                yield from below(one)

    for top in TOPS:
        yield from below(root / top)


def modules(folder: Path) -> list[Path]:
    """The modules of a folder, its own docstring's left out."""
    return sorted(one for one in folder.glob("*.py") if one.name != "__init__.py")


def folders(root: Path) -> str:
    """The table of DESIGN.md."""
    rows = ["| folder | what is in it |", "|---|---|"]
    for folder in packages(root):
        name = folder.relative_to(root).as_posix()
        rows.append(f"| [`{name}`](docs/map.md#{heading(name)}) | {sentence(folder / '__init__.py')} |")
    return "\n".join(rows)


def heading(name: str) -> str:
    """What GitHub makes of such a heading in an address."""
    return re.sub(r"[^a-z0-9_ -]", "", name.lower()).replace(" ", "-")


def page(root: Path, how: str) -> str:
    """docs/map.md."""
    lines = ["# Map", "", f"The first sentence of each module. {how}"]
    for folder in packages(root):
        name = folder.relative_to(root).as_posix()
        lines += ["", f"## {name}", "", linked(sentence(folder / "__init__.py"))]
        if rows := modules(folder):
            lines += ["", "| module | |", "|---|---|"]
            lines += [f"| [`{one.stem}`](../{name}/{one.name}) | {linked(sentence(one))} |" for one in rows]
    return "\n".join(lines) + "\n"
