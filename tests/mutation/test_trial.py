import subprocess
from pathlib import Path

import pytest

pytest.importorskip("cosmic_ray", reason="NO MUTANTS: cosmic-ray is not installed (the extra `mutation`)")

from tests.mutation.mutants import Mutant
from tests.mutation.trial import HANGS, OTHER_TESTS, OWN_TESTS, QUICK, SURVIVED, Copy

ADD = "def add(a, b):\n    return a + b\n"
COUNT = "def count(limit):\n    one = 0\n    while one < limit:\n        one = one + 1\n    return one\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    files = {
        "src/anabranch/__init__.py": "",
        "src/anabranch/protocol/__init__.py": "",
        "src/anabranch/protocol/add.py": ADD,
        "src/anabranch/protocol/count.py": COUNT,
        "src/anabranch/protocol/spare.py": ADD,
        "tests/protocol/test_add.py": "from anabranch.protocol.add import add\ndef test_add(): assert add(1, 2) == 3\n",
        "tests/test_count.py": "from anabranch.protocol.count import count\ndef test_count(): assert count(2) == 2\n",
        "tests/protocol/test_spare.py": "from anabranch.protocol.spare import add\ndef test(): assert add(1, 0) == 1\n",
        "pytest.ini": "[pytest]\nmarkers ="
        + "".join(f"\n    {name}" for name in QUICK.split() if name not in ("and", "not")),
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "protocol").symlink_to("src/anabranch/protocol")
    for command in ("init -q", "add .", "-c user.name=a -c user.email=a@b commit -q -m all"):
        subprocess.run(["git", *command.split()], cwd=root, check=True)
    return root


@pytest.mark.costly
def test_mutants_are_noticed_by_own_tests_other_tests_or_a_time_limit(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # one of them is this package's own
    monkeypatch.setattr("tests.mutation.trial.WIDE_LIMIT_S", 20.0)
    copy = Copy(checkout, tmp_path / "copy", schedules=0)
    minus = "ReplaceBinaryOperator_Add_Sub"
    assert copy.try_mutant(Mutant("protocol/add.py", minus, 0, 2)) == OWN_TESTS
    assert copy.try_mutant(Mutant("protocol/count.py", "ReplaceComparisonOperator_Lt_LtE", 0, 3)) == OTHER_TESTS
    assert copy.try_mutant(Mutant("protocol/count.py", minus, 0, 4)) == HANGS
    spare = Mutant("protocol/spare.py", minus, 0, 2)
    assert copy.try_mutant(spare) == SURVIVED
    assert copy.line_of(spare) == "-return a + b | +return a - b"
