"""No name leads out of its directory."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.file_paths import InvalidPath, path_below, path_inside


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/../b", "a/..", "/etc", "a//b", "a/", "a/./b", "a\0b", "\0"])
def test_name_outside_of_root_is_refused(name: str) -> None:
    with pytest.raises(InvalidPath):
        path_below("/data", name)


@pytest.mark.parametrize("name", ["t-0", "t-0/note", "..t-0", "a..b", "...", "t-0/00000000000000000000.log"])
def test_ordinary_name_is_below_its_root(name: str) -> None:
    assert path_below("/data", name) == f"/data/{name}"


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/x", "a/b", "a/", "a\0"])
def test_name_of_more_than_one_part_is_refused(name: str) -> None:
    with pytest.raises(InvalidPath):
        path_inside("/data", name)
    assert path_inside("/data", "a..b") == "/data/a..b"


@given(st.text(st.sampled_from("a./\0"), max_size=8))
def test_any_name_is_refused_or_below_its_root(name: str) -> None:
    try:
        path = path_below("/data", name)
    except InvalidPath:
        return
    assert os.path.normpath(path) == path
    assert path.startswith("/data/")
