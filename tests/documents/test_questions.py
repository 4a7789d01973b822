"""An engineer who knows Kafka finds a behavior in two searches with Kafka's word.

The first hop is a search for the word in the names and the first sentences of modules, classes and functions of the
product; it ends at few files. The second is the same search in the file; it ends at the function.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.documents.statements import statements

ROOT = Path(__file__).parents[2]
PACKAGES = ("broker", "controller", "protocol", "clients")
FILES_MAX = 8
FUNCTIONS_MAX = 6

QUESTIONS = {
    "where does a follower leave the ISR?": (
        "shrink.*isr|isr.*shrink|lagging member",
        "broker/replication/partition.py",
        "propose_shrink",
    ),
    "where does a classic member's session expire?": (
        "session.?expire",
        "broker/coordinators/classic_groups/members.py",
        "session_expired",
    ),
    "where does a producer id expire?": ("expire.?producer", "broker/storage/log.py", "expire_producers"),
    "where does a gate open?": ("gate.*open", "protocol/order_gates.py", "waits"),
    "what does a Fetch of an unknown topic id get?": (
        "unknown topic id",
        "broker/replication/fetch_reader.py",
        "_answer",
    ),
    "where is retention?": ("retention", "broker/storage/log.py", "apply_retention"),
    "who fences a zombie controller?": ("stale.controller.epoch", "broker/membership/controller_fence.py", "admit"),
    "how is a transaction's timeout found?": (
        "transaction.*timed.?out|timed.?out.*transaction",
        "broker/coordinators/transactions/transaction_requests.py",
        "has_timed_out",
    ),
}


@cache
def _headlines() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            lines = found[str(path.relative_to(ROOT))] = {}
            tree = ast.parse(path.read_text())
            lines[""] = f"{path.stem} {_first_sentence(tree)}"
            for node in statements(tree):
                if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    lines[node.name] = f"{node.name} {_first_sentence(node)}"
    return found


def _first_sentence(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split()).partition(". ")[0]


@pytest.mark.parametrize("question", QUESTIONS)
def test_kafka_term_leads_to_file_and_function(question: str) -> None:
    word, file, function = QUESTIONS[question]
    by_file = {
        path: [name for name, line in lines.items() if name and re.search(word, line, re.I)]
        for path, lines in _headlines().items()
        if any(re.search(word, line, re.I) for line in lines.values())
    }
    assert file in by_file, f"{word!r} finds {sorted(by_file)}"
    assert len(by_file) <= FILES_MAX, f"{word!r} finds too many files: {sorted(by_file)}"
    assert function in by_file[file], f"{word!r} finds {by_file[file]} in {file}"
    assert len(by_file[file]) <= FUNCTIONS_MAX
