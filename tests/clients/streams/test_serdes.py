"""JSON values are read as `json.loads` reads them, in every encoding, and written without spaces."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.clients.streams.serdes import JSON

VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_json_value_is_written_without_spaces_and_read_back(value: Any) -> None:
    encoded = JSON.encode(value)
    assert encoded == json.dumps(value, separators=(",", ":")).encode()
    assert JSON.decode(encoded) == value


@given(VALUES, st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"]))
def test_json_of_another_encoding_is_read_as_by_the_standard_library(value: Any, encoding: str) -> None:
    raw = json.dumps(value).encode(encoding)
    assert JSON.decode(raw) == json.loads(raw) == value


@pytest.mark.parametrize("raw", [b"", b"{", b"1 2", b"\xff", b"\xc3("])
def test_text_that_is_no_json_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError):
        JSON.decode(raw)
