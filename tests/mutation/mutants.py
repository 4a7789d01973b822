"""Mutants of a module: its code with one operator, constant or condition changed, by Cosmic Ray's operators.

Not changed is what no test can notice or what only tunes: annotations, decorators, statements outside of functions, and
the texts and arguments of log lines and exceptions.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.provider import OperatorProvider

CORES: Final = (
    "broker/coordinators",
    "broker/replication",
    "broker/storage",
    "clients/consumer",
    "clients/producer",
    "controller",
    "protocol",
)
"""The folders of pure logic."""
OPERATORS: Final = (
    "AddNot",
    "ReplaceAndWithOr",
    "ReplaceBinaryOperator_Add_Sub",
    "ReplaceBinaryOperator_FloorDiv_Mul",
    "ReplaceBinaryOperator_Mod_FloorDiv",
    "ReplaceBinaryOperator_Mul_Add",
    "ReplaceBinaryOperator_Sub_Add",
    "ReplaceBreakWithContinue",
    "ReplaceComparisonOperator_Eq_NotEq",
    "ReplaceComparisonOperator_GtE_Gt",
    "ReplaceComparisonOperator_Gt_GtE",
    "ReplaceComparisonOperator_Gt_LtE",
    "ReplaceComparisonOperator_IsNot_Is",
    "ReplaceComparisonOperator_Is_IsNot",
    "ReplaceComparisonOperator_LtE_Lt",
    "ReplaceComparisonOperator_Lt_GtE",
    "ReplaceComparisonOperator_Lt_LtE",
    "ReplaceComparisonOperator_NotEq_Eq",
    "ReplaceContinueWithBreak",
    "ReplaceFalseWithTrue",
    "ReplaceOrWithAnd",
    "ReplaceTrueWithFalse",
    "ReplaceUnaryOperator_Delete_Not",
    "ReplaceUnaryOperator_USub_UAdd",
    "NumberReplacer",
    "ZeroIterationForLoop",
)
LOGGERS: Final = ("log", "logging", "warnings")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one module."""

    module: str
    operator: str
    occurrence: int
    line: int

    @property
    def key(self) -> str:
        """The name of the mutant in results."""
        return f"{self.module}:{self.operator}:{self.occurrence}"

    @property
    def place(self) -> str:
        """The line of the mutant."""
        return f"{self.module}:{self.line}"

    def source(self, root: Path) -> str:
        """Return the module's changed source."""
        changed = mutate_code((root / self.module).read_text(), _operator(self.operator), self.occurrence)
        assert changed is not None, self
        return str(changed)


def sample(root: Path, folders: Iterable[str], count: int, seed: int) -> list[Mutant]:
    """Draw mutants of the modules in these folders, by hash: a change of one module leaves those of the others."""
    modules = sorted(
        path.relative_to(root).as_posix()
        for folder in folders
        for path in (root / folder).rglob("*.py")
        if not path.name.startswith("__")
    )
    found = [mutant for module in modules for mutant in mutants(module, (root / module).read_text())]
    return sorted(found, key=lambda one: hashlib.sha256(f"{seed} {one.key}".encode()).digest())[:count]


def part_of_mutants(drawn: Sequence[Mutant], number: int, parts: int) -> list[Mutant]:
    """Return part `number`, from 1 on, of mutants, module by module: those of a module are in one part."""
    chosen = sorted({mutant.module for mutant in drawn})[number - 1 :: parts]
    return [mutant for module in chosen for mutant in drawn if mutant.module == module]


def mutants(module: str, source: str) -> Iterator[Mutant]:
    """Yield every mutant of a module."""
    lines = deciding_lines(source)
    nodes = list(ast_nodes(get_ast(source)))
    for name in OPERATORS:
        operator = _operator(name)
        positions = [position for node in nodes for position in operator.mutation_positions(node)]
        for occurrence, ((line, column), _) in enumerate(positions):
            if any(start <= (line, column) < end for start, end in lines):
                yield Mutant(module, name, occurrence, line)


def deciding_lines(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return where functions decide something: the starts and ends of their statements, by line and column."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found += [span for statement in node.body for span in _spans(statement)]
    return found


def _spans(node: ast.AST) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield the spans of a statement or expression, without those of annotations, texts and log lines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Raise | ast.Assert):
        return
    if isinstance(node, ast.Expr) and (isinstance(node.value, ast.Constant) or _logs(node.value)):
        return
    if isinstance(node, ast.AnnAssign):
        if node.value is not None:
            yield from _spans(node.value)
        return
    nested = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt | ast.excepthandler)]
    if not nested:
        if isinstance(node, ast.stmt | ast.expr):
            assert node.end_lineno is not None and node.end_col_offset is not None
            yield (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
        return
    first = min(nested, key=lambda child: child.lineno)
    if isinstance(node, ast.stmt):
        yield (node.lineno, node.col_offset), (first.lineno, first.col_offset)
    for child in nested:
        yield from _spans(child)


def _logs(call: ast.expr) -> bool:
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id in LOGGERS
    )


def _operator(name: str) -> Any:
    return OperatorProvider()[name]()
