"""A misspelt name gets the nearest one, or all, as suggestion."""

from __future__ import annotations

import pytest

from anabranch.protocol.suggestion import suggest


@pytest.mark.parametrize(
    ("name", "says"),
    [("lingerms", "did you mean linger_ms?"), ("foo", "there are linger_ms, acks"), ("", "there are linger_ms, acks")],
)
def test_nearest_name_is_suggested_or_else_all(name: str, says: str) -> None:
    assert suggest(name, ("linger_ms", "acks")) == says
