"""The parts of the suite on a compiled wheel have each file once, and a change of the sources is a new wheel."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from tests import compiled_suite


@pytest.mark.parametrize("parts", [1, 6])
def test_each_file_is_in_one_part(parts: int) -> None:
    files = sorted(compiled_suite.test_files())
    found = [path for number in range(1, parts + 1) for path in compiled_suite.part_of(files, number, parts)]
    assert sorted(found) == files
    assert len(files) > 500 and not [path for path in files if "sim" in path.parent.parts[-2:]]


def test_part_is_refused_beyond_the_last() -> None:
    assert compiled_suite.part("6/6") == (6, 6)
    with pytest.raises(argparse.ArgumentTypeError, match="the last one 6/6"):
        compiled_suite.part("7/6")


def test_hash_depends_on_each_module_of_the_package(tmp_path: Path) -> None:
    for name in compiled_suite.SOURCES:
        (tmp_path / name).touch()
    (tmp_path / "broker").mkdir()
    module = tmp_path / "broker/log.py"
    module.write_text("one = 1\n")
    (tmp_path / "src/anabranch").mkdir(parents=True)
    (tmp_path / "src/anabranch/broker").symlink_to("../../broker")
    before = compiled_suite.digest(tmp_path)
    assert compiled_suite.digest(tmp_path) == before
    module.write_text("one = 2\n")
    assert compiled_suite.digest(tmp_path) != before
