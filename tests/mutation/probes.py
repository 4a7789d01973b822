"""Probes: which tests execute a line, and a function's code changed where it lies in memory.

Modules with mutants are imported with a call before each line that has one. It notes the line; a mutant cannot be
noticed by a test that does not execute its line.
"""

from __future__ import annotations

import ast
import builtins
import gc
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import SourceFileLoader
from types import CodeType, FunctionType
from typing import Final, TypeAlias

NAME: Final = "__note_line__"
Key: TypeAlias = tuple[str, int]
Changes: TypeAlias = list[tuple[FunctionType, CodeType]]


class Probes:
    """Notes which lines of some modules are executed."""

    def __init__(self, lines: Iterable[tuple[str, int]]) -> None:
        self.seen: set[str] = set()
        """The lines executed since the last `clear`, as `module:line`."""
        self._lines: dict[str, set[int]] = {}
        for module, line in lines:
            self._lines.setdefault(module, set()).add(line)
        self._functions: dict[str, list[FunctionType]] = {}

    def install(self) -> None:
        """Let modules that are imported from now on have probes."""
        setattr(builtins, NAME, self.seen.add)
        plain = SourceFileLoader.get_code

        def get_code(loader: SourceFileLoader, fullname: str) -> CodeType | None:
            module = fullname.removeprefix("anabranch.").replace(".", "/") + ".py"
            if module not in self._lines:
                return plain(loader, fullname)
            path = loader.get_filename(fullname)
            tree = ast.parse(loader.get_data(path))
            for line in self._lines[module]:
                add_probe(tree.body, line, f"{module}:{line}")
            return compile(ast.fix_missing_locations(tree), path, "exec")

        SourceFileLoader.get_code = get_code  # type: ignore[method-assign]

    def find_functions(self) -> None:
        """Look up the functions of all imported modules, once."""
        gc.unfreeze()
        for one in gc.get_objects():
            if type(one) is FunctionType:
                self._functions.setdefault(one.__code__.co_filename, []).append(one)

    def changes(self, module: str, before: str, after: str) -> Changes | None:
        """Return the functions in memory that a mutant changes, with their code; None if that cannot be told."""
        imported = sys.modules.get("anabranch." + module.removesuffix(".py").replace("/", "."))
        if imported is None:
            return []  # tests import it from the changed file
        changed = changed_codes(before, after, str(imported.__file__))
        found = []
        for function in self._functions.get(str(imported.__file__), []):
            if (key := _key(function.__code__)) in changed:
                code = changed[key]
                if code is None or code.co_freevars != function.__code__.co_freevars:
                    return None
                found.append((function, code))
        return found


def add_probe(body: list[ast.stmt], line: int, noted: str) -> bool:
    """Insert a probe before the innermost statement that has a line; returns whether there is one."""
    for index, statement in enumerate(body):
        if statement.lineno <= line <= (statement.end_lineno or 0):
            if not any(add_probe(nested, line, noted) for nested in _bodies(statement)):
                probe = ast.parse(f"{NAME}({noted!r})").body[0]
                for node in ast.walk(probe):
                    if isinstance(node, ast.stmt | ast.expr):
                        ast.copy_location(node, statement)
                body.insert(index, probe)
            return True
    return False


def changed_codes(before: str, after: str, path: str) -> Mapping[Key, CodeType | None]:
    """Return the codes that differ, by name and first line; None for one that is gone, or has a namesake there."""
    old, new = (_codes_by_key(compile(source, path, "exec")) for source in (before, after))
    return {
        key: new[key][0] if len(codes) == len(new[key]) == 1 else None
        for key, codes in old.items()
        if codes != new[key]
    }


def _bodies(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for owner in (statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        for name in ("body", "orelse", "finalbody"):
            if isinstance(nested := getattr(owner, name, None), list):
                yield nested


def _codes_by_key(code: CodeType) -> dict[Key, list[CodeType]]:
    found: dict[Key, list[CodeType]] = defaultdict(list)
    waiting = [code]
    while waiting:
        one = waiting.pop()
        found[_key(one)].append(one)
        waiting += [constant for constant in one.co_consts if isinstance(constant, CodeType)]
    return found


def _key(code: CodeType) -> Key:
    return code.co_qualname, code.co_firstlineno
