"""The table of rules is complete, and every named test exists."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.contracts.rules import RULES, Rule

TESTS = Path(__file__).parent.parent


def test_every_rule_is_listed() -> None:
    assert [rule.number for rule in RULES] == [f"R{number}" for number in range(1, 22)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.number)
def test_tests_of_rule_exist(rule: Rule) -> None:
    for test in rule.tests:
        path, _, name = test.partition("::")
        tree = ast.parse((TESTS / path).read_text())
        assert name in {
            node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }, test
