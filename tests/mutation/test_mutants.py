from pathlib import Path

import pytest

pytest.importorskip("cosmic_ray", reason="NO MUTANTS: cosmic-ray is not installed (the extra `mutation`)")

from tests.mutation.mutants import Mutant, mutants, part_of_mutants, sample

SOURCE = '''
import logging

log = logging.getLogger(__name__)
LIMIT: int | None = 3 + 4


def wait(left: int | None, count: int = 1) -> int:
    """Return 1 + 1."""
    if left is None or count > 2:
        log.info("%d", count + 1)
        raise ValueError(f"{count + 1} left")
    total: int | float = count - 1
    for one in range(count):
        total += one
    return total
'''


def test_conditions_numbers_and_loops_of_functions_are_changed() -> None:
    found = list(mutants("wait.py", SOURCE))
    assert {(one.operator, one.line) for one in found} == {
        ("AddNot", 10),
        ("NumberReplacer", 10),
        ("NumberReplacer", 13),
        ("ReplaceBinaryOperator_Sub_Add", 13),
        ("ReplaceComparisonOperator_Gt_GtE", 10),
        ("ReplaceComparisonOperator_Gt_LtE", 10),
        ("ReplaceComparisonOperator_Is_IsNot", 10),
        ("ReplaceOrWithAnd", 10),
        ("ZeroIterationForLoop", 14),
    }


def test_source_of_a_mutant_differs_in_one_place(tmp_path: Path) -> None:
    (tmp_path / "wait.py").write_text(SOURCE)
    mutant = Mutant("wait.py", "ReplaceComparisonOperator_Gt_GtE", 0, 10)
    assert mutant.source(tmp_path) == SOURCE.replace("count > 2", "count >= 2")


def test_sample_is_the_same_for_a_seed(tmp_path: Path) -> None:
    (tmp_path / "core").mkdir()
    (tmp_path / "core/wait.py").write_text(SOURCE)
    (tmp_path / "core/__init__.py").write_text(SOURCE)
    drawn = sample(tmp_path, ["core"], 5, seed=1)
    assert len(drawn) == 5
    assert drawn == sample(tmp_path, ["core"], 5, seed=1)
    assert drawn != sample(tmp_path, ["core"], 5, seed=2)
    assert {one.module for one in sample(tmp_path, ["core"], 1000, seed=1)} == {"core/wait.py"}


def test_mutants_of_a_module_are_in_one_part() -> None:
    drawn = [Mutant(module, "AddNot", occurrence, 1) for occurrence in range(3) for module in ("b.py", "a.py", "c.py")]
    parts = [part_of_mutants(drawn, number, 2) for number in (1, 2)]
    assert [[(one.module, one.occurrence) for one in part] for part in parts] == [
        [("a.py", 0), ("a.py", 1), ("a.py", 2), ("c.py", 0), ("c.py", 1), ("c.py", 2)],
        [("b.py", 0), ("b.py", 1), ("b.py", 2)],
    ]
