"""Labels in code and pages: R1 is a rule, I1 an invariant, K101 a defect, D1 a decision, A1, B1, C1, L1 checkers.

In Python, comments and docstrings are read, and of other strings what stands in brackets: data of tests may look like
anything. In pages everything but code, and in scenarios the comments.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.documents.statements import statements

LABEL: Final = re.compile(r"(?<![\w%./#`'\"<])([A-DFGHIKLR]\d{1,3}|E\d{1,2})(?![\w\"`.]*[\w\"`(=])")
BRACKETED: Final = re.compile(r"\(((?:[A-IKLR]\d{1,3}(?:, | and | to |; )?)+)\)")
MAYBE: Final = re.compile(r"\b[A-IKLR]\d|facts \d|eed 0|analysis|architecture")
IN_COMMENT: Final = re.compile(rf"#.*(?:{MAYBE.pattern})")
FOREIGN: Final = re.compile(r"\bfacts \d|\banalysis,? [A-Z§]?\d|\b[Ss]eed 0\d\d\b|\barchitecture D\d")
"""What pointed to documents that are not here."""


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file in which labels are meant as such, numbered."""
    text = path.read_text()
    if not MAYBE.search(text):
        return  # to parse them all would take most of a minute
    if path.suffix == ".py":
        if IN_COMMENT.search(text):
            yield from comments(text)
        yield from docstrings(text)
        yield from ((text.count("\n", 0, one.start()) + 1, one.group(1)) for one in BRACKETED.finditer(text))
    elif path.suffix == ".txt":
        yield from ((number, line) for number, line in enumerate(text.splitlines(), 1) if line.startswith("#"))
    else:
        yield from outside_code(text)


def comments(text: str) -> Iterator[tuple[int, str]]:
    """Of Python."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Of modules, classes and functions, and what stands behind a field."""
    for node in statements(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from enumerate(node.value.value.splitlines(), node.lineno)


def outside_code(text: str) -> Iterator[tuple[int, str]]:
    """Of Markdown: no fenced blocks, no code in a line."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, re.sub(r"`[^`]*`", "", line)


def labels(line: str) -> list[str]:
    """The labels of one line."""
    return [] if "noqa" in line else LABEL.findall(line)


def home(label: str) -> str:
    """The page and anchor below docs/ that define a label."""
    page = {"R": "resize.md", "I": "resize.md", "K": "resize.md", "D": "decisions/README.md"}.get(
        label[0], "checkers.md"
    )
    return f"{page}#{label.lower()}"


def linked(text: str) -> str:
    """Text of a page in docs/ with its labels as links. What is code, or a link already, stays as it is."""
    parts = re.split(r"(`[^`]*`|\[[^\]]*\]\([^)]*\))", text)
    return "".join(part if at % 2 else LABEL.sub(_link, part) for at, part in enumerate(parts))


def _link(found: re.Match[str]) -> str:
    return f"[{found.group(1)}]({home(found.group(1))})"
