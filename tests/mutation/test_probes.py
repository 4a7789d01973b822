import ast
import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutation import probes
from tests.mutation.probes import NAME, Probes, add_probe, changed_codes

SOURCE = """
def sign(number):
    if number < 0:
        return -1
    elif number == 0:
        return 0
    for one in range(2):
        number += one
    return max(
        number,
        1,
    )
"""


@pytest.fixture
def sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Probes, ModuleType]]:
    (tmp_path / "sign.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(probes.SourceFileLoader, "get_code", probes.SourceFileLoader.get_code)
    monkeypatch.setattr("builtins.__note_line__", None, raising=False)
    noting = Probes([("sign.py", 4), ("sign.py", 5), ("sign.py", 11)])
    noting.install()
    yield noting, __import__("sign")
    del sys.modules["sign"]


def test_executed_lines_are_noted(sign: tuple[Probes, ModuleType]) -> None:
    noting, module = sign
    assert noting.seen == set()
    assert (module.sign(-3), noting.seen) == (-1, {"sign.py:4"})
    noting.seen.clear()
    assert (module.sign(0), noting.seen) == (0, {"sign.py:5"})
    noting.seen.clear()
    assert (module.sign(4), noting.seen) == (5, {"sign.py:5", "sign.py:11"})


@pytest.mark.parametrize(("line", "before"), [(3, "if number < 0:"), (6, "return 0"), (7, "for one"), (8, "number +=")])
def test_probe_stands_before_the_innermost_statement(line: int, before: str) -> None:
    tree = ast.parse(SOURCE)
    assert add_probe(tree.body, line, "here")
    lines = ast.unparse(tree).splitlines()
    position = next(number for number, text in enumerate(lines) if NAME in text)
    assert lines[position + 1].strip().startswith(before)


def test_probe_needs_a_statement() -> None:
    assert not add_probe(ast.parse(SOURCE).body, 99, "here")


def test_functions_in_memory_get_the_code_of_a_mutant(
    sign: tuple[Probes, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    noting, module = sign
    monkeypatch.setitem(sys.modules, "anabranch.sign", module)
    noting.find_functions()
    gc.freeze()
    changes = noting.changes("sign.py", SOURCE, SOURCE.replace("< 0", "<= 0"))
    assert changes is not None
    assert [function for function, _ in changes] == [module.sign]
    for function, code in changes:
        function.__code__ = code
    assert module.sign(0) == -1
    assert noting.changes("absent.py", SOURCE, SOURCE) == []


def test_code_that_cannot_be_told_from_another_is_not_changed() -> None:
    two = "def both():\n    return (lambda: 1), (lambda: 2)\n"
    changed = changed_codes(two, two.replace("2", "3"), "two.py")
    assert changed[("both.<locals>.<lambda>", 2)] is None
    assert changed[("both", 1)] is not None
    gone = changed_codes("def count(a):\n    return [1 for _ in a]\n", "def count(a):\n    return []\n", "gone.py")
    assert gone[("count.<locals>.<listcomp>", 2)] is None
