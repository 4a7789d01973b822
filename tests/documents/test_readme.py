"""README is short, and commands that no test can run are checked statically.

`test_blocks.py` runs the blocks of pages. Here are commands in sentences, and blocks that need what may not be here.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import shlex

import click
import pytest

from anabranch.cli.main import cli
from tests.cases import for_each
from tests.documents.blocks import blocks
from tests.documents.links import pages
from tests.documents.made import ROOT

MADE = {"docs/map.md", "docs/reference.md"}
PAGES = [page for page in pages(ROOT) if page.relative_to(ROOT).as_posix() not in MADE]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def limited(language: str) -> list[str]:
    """The blocks in a language that need more than the package."""
    found = [block for page in PAGES for block in blocks(page.read_text())]
    return [block.code for block in found if block.language == language and block.needs]


def commands(program: str) -> list[str]:
    """The commands of a page: at a prompt, or as code in a sentence."""
    typed = [line for block in limited("console") for line in re.findall(r"^\$ (.+)$", block, re.MULTILINE)]
    quoted = [one for page in PAGES for one in re.findall(r"`([^`\n]+)`", page.read_text())]
    words = rf"^(?:\.venv/bin/)?{program}(?: |$)"
    return sorted({re.sub(words, "", one) for one in (*typed, *quoted) if re.match(words, one)})


def test_readme_has_150_lines_at_most() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@for_each(commands("anabranch"))
def test_commands_of_anabranch_are_valid(typed: str) -> None:
    """Arguments may be missing in a sentence, but unknown options are errors."""
    command: click.Command = cli
    words = shlex.split(typed)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name = words.pop(0)
        found = command.get_command(click.Context(command), name)
        assert found is not None, f"anabranch {typed}: there is no {name}"
        command = found
    if isinstance(command, click.Group) and not words:
        return  # it is spoken of, not called
    try:
        command.make_context("anabranch", words)
    except click.MissingParameter:
        pass
    except click.BadParameter as error:
        if "does not exist" not in error.message:  # a file that the page has written
            raise
    except click.exceptions.Exit as done:
        assert done.exit_code == 0


@for_each(commands(r"make(?: -C \S+)?"))
def test_make_targets_exist(typed: str) -> None:
    assert {word for word in typed.split() if "=" not in word} <= TARGETS


@for_each(commands(r"(?:python3?|\.venv/bin/python) -m"))
def test_modules_are_runnable(typed: str) -> None:
    module = typed.split()[0]
    if module in ("venv", "pip"):
        return
    spec = importlib.util.find_spec(module)
    assert spec is not None, module
    if spec.submodule_search_locations is not None:
        assert importlib.util.find_spec(f"{module}.__main__") is not None, module


@pytest.mark.parametrize("code", limited("python"))
def test_imports_in_examples_exist(code: str) -> None:
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "anabranch":
            module = importlib.import_module(node.module or "")
            for name in node.names:
                assert hasattr(module, name.name), f"{node.module} has no {name.name}"
