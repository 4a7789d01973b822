import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

pytest.importorskip("cosmic_ray", reason="NO MUTANTS: cosmic-ray is not installed (the extra `mutation`)")

from tests.mutation.trial import HANGS, OTHER_TESTS, OWN_TESTS, QUICK, SURVIVED

ADD: Final = "def add(a, b):\n    return a + b\n"
COUNT: Final = "def count(limit):\n    one = 0\n    while one < limit:\n        one = one + 1\n    return one\n"
PAUSE: Final = (
    "import threading\n\n\ndef pause(ready):\n    if not ready:\n        threading.Event().wait()\n    return 1\n"
)
TABLE: Final = "def three():\n    return 1 + 2\n\n\nTHREE = three()\n"
FILES: Final = {
    "src/anabranch/__init__.py": "",
    "src/anabranch/protocol/__init__.py": "",
    "src/anabranch/protocol/add.py": ADD,
    "src/anabranch/protocol/count.py": COUNT,
    "src/anabranch/protocol/pause.py": PAUSE,
    "src/anabranch/protocol/spare.py": ADD,
    "src/anabranch/protocol/table.py": TABLE,
    "tests/protocol/test_add.py": "from anabranch.protocol.add import add\ndef test_add(): assert add(1, 2) == 3\n",
    "tests/test_count.py": "from anabranch.protocol.count import count\ndef test_count(): assert count(2) == 2\n",
    "tests/protocol/test_pause.py": (
        "from anabranch.protocol.pause import pause\ndef test_pause(): assert pause(True) == 1\n"
    ),
    "tests/protocol/test_spare.py": (
        "from anabranch.protocol.spare import add\n"
        "def test_zero(): assert add(1, 0) == 1\n"
        "def test_that_fails_without_a_mutant(): assert add(1, 1) == 3\n"
    ),
    "tests/protocol/test_table.py": "from anabranch.protocol.table import THREE\ndef test(): assert THREE == 3\n",
    "pytest.ini": "[pytest]\nmarkers ="
    + "".join(f"\n    {name}" for name in QUICK.split() if name not in ("and", "not")),
}
TRY: Final = """
import json, pathlib, sys
import pytest
from tests.mutation import trial
from tests.mutation.mutants import Mutant
from tests.mutation.probes import Probes

trial.LIMIT_S, trial.STILL_S = 1.0, 5.0
mutants = [Mutant(*one) for one in json.loads(sys.argv[1])]
probes = Probes((one.module, one.line) for one in mutants)
probes.install()
found = []
root = pathlib.Path.cwd()
trials = trial.Trials(root, mutants, probes, 0, lambda mutant, by, detail: found.append((mutant.module, by, detail)))
pytest.main([*trial.OPTIONS, *trials.files()], plugins=[trials])
print(json.dumps(found))
"""
MINUS: Final = "ReplaceBinaryOperator_Add_Sub"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "protocol").symlink_to("src/anabranch/protocol")
    return tmp_path


@pytest.mark.costly
def test_mutants_are_noticed_by_own_tests_other_tests_or_a_time_limit(checkout: Path) -> None:
    mutants = [
        ("protocol/add.py", MINUS, 0, 2),
        ("protocol/count.py", "ReplaceComparisonOperator_Lt_LtE", 0, 3),
        ("protocol/count.py", MINUS, 0, 4),
        ("protocol/pause.py", "ReplaceUnaryOperator_Delete_Not", 0, 5),
        ("protocol/spare.py", MINUS, 0, 2),
        ("protocol/table.py", MINUS, 0, 2),
    ]
    environment = os.environ | {
        "PYTHONPATH": f"{checkout}/src:{Path(__file__).parents[2]}",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # one of them is this package's own
    }
    done = subprocess.run(
        [sys.executable, "-c", TRY, json.dumps(mutants)], cwd=checkout, env=environment, capture_output=True, check=True
    )
    assert json.loads(done.stdout.splitlines()[-1]) == [
        ["protocol/add.py", OWN_TESTS, "tests/protocol/test_add.py::test_add"],
        ["protocol/count.py", OTHER_TESTS, "tests/test_count.py::test_count"],
        ["protocol/count.py", HANGS, "tests/test_count.py::test_count"],
        ["protocol/pause.py", HANGS, "tests/protocol/test_pause.py::test_pause"],
        ["protocol/spare.py", SURVIVED, "1 tests and 0 schedules execute it"],
        ["protocol/table.py", OTHER_TESTS, "in a new interpreter"],
    ]
    assert {name: (checkout / name).read_text() for name in FILES} == FILES
