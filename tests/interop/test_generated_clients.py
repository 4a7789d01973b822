"""Goal: clients that are generated from the OpenAPI document compile, and drive a cluster, by the README's commands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running import running

pytestmark = pytest.mark.interop

WHOLE = bool(os.environ.get("ANABRANCH_INTEROP"))
EXAMPLES = Path(__file__).parents[2] / "examples/http"
GENERATED = ("control", "control.d.ts", "build", "node_modules", "*.jar")


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The examples, without what was made in them."""
    return Path(shutil.copytree(EXAMPLES, tmp_path / "http", ignore=shutil.ignore_patterns(*GENERATED)))


@pytest.fixture(scope="module")
def control() -> Iterator[str]:
    with running("up", "--port", "0", "--control", "127.0.0.1:0") as ready:
        yield ready["control"]


def output(folder: Path, control: str) -> str:
    """What the commands of the README for this folder print."""
    blocks = re.findall(r"```console\n(.*?)```", (EXAMPLES / "README.md").read_text(), re.DOTALL)
    block = next(one for one in blocks if f"examples/http/{folder.name}\n" in one)
    lines = [one.removeprefix("$ ").replace("http://127.0.0.1:9190", control) for one in block.splitlines()[1:]]
    script = "set -e\n" + "\n".join(lines)
    environment = {**os.environ, "ANABRANCH_CONTROL": control}
    done = subprocess.run(
        ["sh", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def check(told: str) -> None:
    assert "0: created\n1: base64 /wAB\n" in told
    assert "node killed: true" in told
    assert "refused: there is no topic nowhere" in told


def test_generated_typescript_compiles_and_drives_a_failover(request: pytest.FixtureRequest, copied: Path) -> None:
    if not WHOLE or shutil.which("npm") is None:
        pytest.skip("NO NODE, or not `make interop`: the generated client in TypeScript was NOT compiled")
    check(output(copied / "typescript", request.getfixturevalue("control")))
    types = (copied / "typescript/control.d.ts").read_text()
    assert "content?: never" not in types and '"application/json": unknown' not in types


def test_generated_go_compiles_and_drives_a_failover(request: pytest.FixtureRequest, copied: Path) -> None:
    missing = [one for one in ("java", "mvn", "go") if shutil.which(one) is None]
    if not WHOLE or missing:
        pytest.skip(f"NO {missing or 'INTEROP'}, or not `make interop`: the generated client in Go was NOT compiled")
    check(output(copied / "go", request.getfixturevalue("control")))
