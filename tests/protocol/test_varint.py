import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.errors import DecodeError
from anabranch.protocol.varint import decode_uvarint, decode_varint, decode_varlong, encode_uvarint, encode_varint


@pytest.mark.parametrize(
    ("value", "wire"),
    [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**32 - 1, "ffffffff0f")],
)
def test_unsigned_varint_survives_the_round_trip(value: int, wire: str) -> None:
    assert encode_uvarint(value).hex() == wire
    assert decode_uvarint(b"\xaa" + bytes.fromhex(wire) + b"\xaa", 1) == (value, 1 + len(wire) // 2)


@pytest.mark.parametrize(
    ("value", "wire"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (-(2**31), "ffffffff0f")],
)
def test_zigzag_varint_survives_the_round_trip(value: int, wire: str) -> None:
    assert encode_varint(value).hex() == wire
    assert decode_varint(bytes.fromhex(wire), 0) == (value, len(wire) // 2)


@given(st.integers(-(2**63), 2**63 - 1))
def test_varlong_survives_the_round_trip(value: int) -> None:
    wire = encode_varint(value)
    assert decode_varlong(memoryview(wire), 0) == (value, len(wire))
    with pytest.raises(DecodeError, match="ends inside a varint"):
        decode_varlong(wire[:-1], 0)


@pytest.mark.parametrize("wire", ["ffffffff1f", "808080808000", "ffffffffff01"])
def test_varint_of_more_than_32_bits_is_refused(wire: str) -> None:
    with pytest.raises(DecodeError, match="more than 32 bits"):
        decode_uvarint(bytes.fromhex(wire), 0)


def test_varlong_of_more_than_64_bits_is_refused() -> None:
    with pytest.raises(DecodeError, match="more than 64 bits"):
        decode_varlong(b"\xff" * 9 + b"\x02", 0)


@pytest.mark.parametrize("value", [-1, 2**32])
def test_value_outside_of_unsigned_32_bits_is_a_value_error(value: int) -> None:
    with pytest.raises(ValueError, match="not an unsigned"):
        encode_uvarint(value)
