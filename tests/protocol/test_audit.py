import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import audit
from protocol.errors import DecodeError

u64 = st.integers(0, 2**64 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
i32 = st.integers(-(2**31), 2**31 - 1)

deliveries = st.builds(
    audit.Delivery,
    generation=i32,
    partition=i32,
    offset=i64,
    producer=u64,
    sequence=u64,
    fingerprint=u64,
    time_ms=i64,
    incarnation=u64,
    group=st.text(max_size=20),
    member=st.text(max_size=20),
    topic=st.text(max_size=20),
)


@given(deliveries)
def test_an_event_comes_back_as_it_went(delivery: audit.Delivery) -> None:
    wire = audit.encode_delivery(delivery)
    assert audit.decode_delivery(wire) == delivery
    for cut in range(len(wire)):
        with pytest.raises(DecodeError, match="audit event"):
            audit.decode_delivery(wire[:cut])


@given(u64, u64)
def test_a_header_comes_back_as_it_went(producer: int, sequence: int) -> None:
    assert audit.decode_header(audit.encode_header(producer, sequence)) == (producer, sequence)


def test_nonsense_is_refused() -> None:
    with pytest.raises(DecodeError, match="3 bytes"):
        audit.decode_header(b"abc")
    with pytest.raises(DecodeError, match="version 9"):
        audit.decode_delivery(b"\x09" + bytes(80))


def test_fingerprints_tell_payloads_apart() -> None:
    assert audit.fingerprint(b"a") != audit.fingerprint(b"b")
    assert audit.fingerprint(None) == 0
