"""The modules that a wheel may have compiled, and such a wheel.

`ANABRANCH_COMPILE=1` builds one, which takes two minutes of processor time and a C compiler; it is installed into an
environment of its own and goes through what is listed below. The rest is about the sources, and runs always: what
mypyc does in another way than Python must not be in a module that it compiles.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import anabranch
from tests.cases import for_each
from tests.compiled_suite import install_compiled

ROOT = Path(__file__).parent.parent
PACKAGE = Path(anabranch.__file__).parent


def hot_modules() -> tuple[str, ...]:
    """The list in setup.py, which runs a build when it is imported."""
    [listed] = [
        node.value
        for node in ast.parse((ROOT / "setup.py").read_text()).body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "HOT"
    ]
    assert listed is not None
    modules: tuple[str, ...] = ast.literal_eval(listed)
    return modules


HOT = hot_modules()


def tree(module: str) -> ast.Module:
    return ast.parse((PACKAGE / f"{module}.py").read_text())


@for_each(HOT)
def test_each_exception_of_a_function_has_a_name_of_its_own(module: str) -> None:
    """A local variable has the type of the first `except`; a second type would fail at run time."""
    for function in ast.walk(tree(module)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            kinds: dict[str, set[str]] = {}
            for node in ast.walk(function):
                if isinstance(node, ast.ExceptHandler) and node.name and node.type:
                    kinds.setdefault(node.name, set()).add(ast.unparse(node.type))
            twice = [name for name, types in kinds.items() if len(types) > 1]
            assert not twice, f"{module}, {function.name}: {twice}"


@for_each(HOT)
def test_nothing_is_kept_in_an_objects_dictionary(module: str) -> None:
    source = (PACKAGE / f"{module}.py").read_text()
    assert "cached_property" not in source and "__dict__" not in source and "vars(" not in source


def test_no_class_is_derived_from_a_compiled_one() -> None:
    compiled = {node.name for module in HOT for node in tree(module).body if isinstance(node, ast.ClassDef)}
    others = (path for path in PACKAGE.rglob("*.py") if str(path.relative_to(PACKAGE).with_suffix("")) not in HOT)
    derived = [
        f"{path}: {node.name}"
        for path in others
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and compiled & {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    ]
    assert not derived


@for_each(HOT)
def test_nothing_is_awaited_while_an_exception_is_handled(module: str) -> None:
    """Coroutines of compiled modules share the handled exception: after a `finally` it would stay, with all frames of
    its context. `async with` is allowed if its exit awaits nothing, like a timeout.
    """
    awaited = [
        f"{module}, line {found.lineno}: {ast.unparse(found)}"
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Try)
        for part in (*node.handlers, *node.finalbody)
        for found in ast.walk(part)
        if isinstance(found, ast.Await | ast.Yield | ast.YieldFrom | ast.AsyncFor | ast.AsyncWith)
    ]
    assert not awaited
    contexts = [ast.unparse(n.items[0]) for n in ast.walk(tree(module)) if isinstance(n, ast.AsyncWith)]
    assert all(one.startswith("asyncio.timeout(") for one in contexts), contexts


COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
WISHED = os.environ.get("ANABRANCH_COMPILE", "") not in ("", "0")
compiled_wheel = pytest.mark.skipif(
    not (WISHED and COMPILER),
    reason=f"NOT COMPILED: ANABRANCH_COMPILE is {'set' if WISHED else 'not set'}, "
    f"and there is {'a' if COMPILER else 'no'} C compiler",
)
SCHEDULES = {"resize": 12, "everything": 8}
"""How many are compared."""
SUITES = (
    *("tests/protocol/records", "tests/protocol/test_connection.py", "tests/protocol/test_framing.py"),
    *(
        "tests/broker/storage",
        "tests/broker/replication/test_follower_log.py",
        "tests/broker/replication/test_replica_fetcher.py",
        "tests/anabranch/cluster/test_in_process.py",
    ),
    *("tests/broker/handlers/test_produce.py", "tests/broker/handlers/test_fetch.py"),
    "tests/broker/replication/test_fetch_reader.py",
    *(
        "tests/broker/network/test_eager_coroutine.py",
        "tests/broker/network/test_request_pipeline.py",
        "tests/broker/network/test_request_processor.py",
        "tests/broker/network/test_server.py",
        "tests/broker/network/test_serving_task.py",
        "tests/broker/network/test_turn_writer.py",
    ),
    *("tests/clients/consumer/test_progress.py", "tests/clients/consumer/test_read_committed.py"),
)
PATCHES = ("test_unchanged_checkpoint_is_not_written", "test_new_partition_does_not_repeat_the_others_in_the_fetch")
"""Tests that put something of theirs into a part of the product, which a compiled one refuses or does not look up."""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with a compiled wheel; what else it needs it takes from this one."""
    return install_compiled(ROOT, tmp_path_factory.mktemp("compiled"))


def run(python: Path, *arguments: str) -> str:
    """What a program prints that runs far from the sources; it must end well."""
    done = subprocess.run(
        [str(python), *arguments], cwd=python.parents[2] / "source", stdout=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout


@compiled_wheel
def test_each_module_can_be_the_first_that_is_imported(python: Path) -> None:
    """The compiler evaluates class annotations, so their names must be imported at run time."""
    for module in HOT:
        name = "anabranch." + module.replace("/", ".")
        where = run(python, "-c", f"import importlib; print(importlib.import_module({name!r}).__file__)")
        assert "site-packages" in where and not where.strip().endswith(".py"), f"{module} is not compiled: {where}"


@compiled_wheel
@pytest.mark.parametrize("scenario", SCHEDULES)
def test_schedules_have_the_same_fingerprints(python: Path, scenario: str) -> None:
    ask = ["-m", "tests.sim.unwatched", scenario, *map(str, range(1, SCHEDULES[scenario] + 1))]
    ours = subprocess.run([sys.executable, *ask], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert json.loads(run(python, *ask)) == json.loads(ours)


@compiled_wheel
def test_a_traceback_names_the_source(python: Path) -> None:
    told = run(
        python,
        "-c",
        "import traceback\n"
        "from anabranch.protocol.records.record import RecordReader\n"
        "try: RecordReader(bytes(70))\n"
        "except Exception: print(traceback.format_exc())",
    )
    found = re.search(r'"(anabranch/protocol/records/record\.py)", line (\d+), in __init__', told)
    assert found, told
    line = (PACKAGE.parent / found[1]).read_text().splitlines()[int(found[2]) - 1]
    assert "raise DecodeError(" in line, line


@compiled_wheel
def test_the_suites_pass(python: Path) -> None:
    run(python, "-m", "pytest", "-q", "-n", "2", "-k", " and ".join(f"not {one}" for one in PATCHES), *SUITES)
