"""What `make` shows before its first line of real work: what is fetched, how much, and what comes next."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def planned(target: str, environment: Path) -> list[str]:
    """The commands of a target, where the environment for Python is in this directory."""
    words = ["make", "--dry-run", "--no-print-directory", target, f"VENV={environment}"]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize("target", ["demo", "test"])
def test_a_first_run_says_how_much_it_fetches_before_pip_starts_and_what_comes_next(
    target: str, tmp_path: Path
) -> None:
    lines = planned(target, tmp_path / "none")
    install = next(number for number, line in enumerate(lines) if "-m pip install" in line)
    before, after = "\n".join(lines[:install]), lines[install + 1 :]
    assert re.search(r"\d+ MB", before)
    assert f"Then: make {target}" in before and any(f"Next: make {target}" in line for line in after)
    assert not re.search(r"(?<!-)-q\b|--quiet|--progress-bar off", lines[install].partition("pip install")[2])
    said = [line for line in after if line.startswith("echo") and "Next:" not in line]
    assert said, "what starts now is not named"


def test_no_later_run_speaks_of_fetching(tmp_path: Path) -> None:
    (tmp_path / ".ready").touch()
    assert not any("MB" in line or "pip" in line for line in planned("demo", tmp_path))


def test_no_target_hides_what_pip_does() -> None:
    installs = [line for line in (ROOT / "Makefile").read_text().splitlines() if "-m pip install" in line]
    assert installs and not any(re.search(r" -q\b| --quiet", line) for line in installs)


def test_tests_have_every_extra_and_the_demonstration_only_what_it_uses(tmp_path: Path) -> None:
    def extras(target: str) -> set[str]:
        installs = [line for line in planned(target, tmp_path / "none") if "-m pip install" in line]
        return {extra for line in installs for extra in line.partition(".[")[2].partition("]")[0].split(",")}

    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"].keys()
    assert extras("test") == declared
    assert declared - extras("demo") == {"mutation", "pyright", "schemas", "site"}
