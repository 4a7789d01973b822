import pytest

from anabranch.protocol.hashing import murmur2


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        # The vectors that Java's clients publish for their murmur2, as signed 32-bit numbers.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hash_equals_murmur2_of_java(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0x7FFFFFFF
