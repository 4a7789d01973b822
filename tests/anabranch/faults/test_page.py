"""The settings of the page on testing take effect; `tests/documents/test_blocks.py` runs its blocks."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.documents.blocks import blocks
from tests.documents.made import ROOT
from tests.running import PYTEST


def run_pytest(directory: Path, *words: str) -> str:
    done = subprocess.run(
        [*PYTEST, *words],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_documented_pytest_settings_work(tmp_path: Path) -> None:
    (settings,) = (one.code for one in blocks((ROOT / "docs/testing.md").read_text()) if one.language == "ini")
    (tmp_path / "pytest.ini").write_text(settings)
    (tmp_path / "test_settings.py").write_text(
        """def test_settings(anabranch):
    assert len(anabranch.nodes) == 3
    topic = anabranch.topic("orders", partitions=-1)
    assert len(anabranch.control.state()["topics"][0]["partitions"]) == 4
    assert anabranch.journal.count() >= 0
"""
    )
    told = run_pytest(tmp_path, "--strict-config")
    assert "1 passed" in told, told
