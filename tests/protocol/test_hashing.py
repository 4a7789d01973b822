import pytest

from protocol import hashing
from protocol.hashing import KnownHashes, murmur2


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
def test_agrees_with_javas_murmur2(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0x7FFFFFFF


def test_known_hashes_are_the_same_and_not_remembered_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashing, "KNOWN_MAX", 3)
    known = KnownHashes()
    for _ in range(2):
        for number in range(10):
            assert known[b"%d" % number] == murmur2(b"%d" % number)
            assert len(known) <= 3
