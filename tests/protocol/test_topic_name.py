"""Names of topics."""

from __future__ import annotations

import pytest

from anabranch.protocol.topic_name import TOPIC_NAME_LENGTH_MAX, is_legal


@pytest.mark.parametrize("name", ["a", "a.b", "..a", "A-b_c.9", "x" * TOPIC_NAME_LENGTH_MAX])
def test_legal_name_is_accepted(name: str) -> None:
    assert is_legal(name)


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "a/b", "a b", "a\0", "a\n", "é", "x" * 250])
def test_illegal_name_is_refused(name: str) -> None:
    assert not is_legal(name)
