"""The header of an audited record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol import audit_mark
from anabranch.protocol.errors import DecodeError

u64 = st.integers(0, 2**64 - 1)


@given(u64, u64)
def test_header_survives_the_round_trip(producer: int, sequence: int) -> None:
    assert audit_mark.decode(audit_mark.encode(producer, sequence)) == (producer, sequence)


@pytest.mark.parametrize("header", [None, b"", b"damaged", bytes(17)])
def test_record_without_valid_header_has_no_number(header: bytes | None) -> None:
    assert audit_mark.decode(audit_mark.sound_mark(header)) == (audit_mark.NO_PRODUCER, audit_mark.NO_SEQUENCE)
    assert audit_mark.sound_mark(audit_mark.encode(1, 2)) == audit_mark.encode(1, 2)


def test_mark_of_another_length_is_refused() -> None:
    with pytest.raises(DecodeError, match="3 bytes"):
        audit_mark.decode(b"abc")
