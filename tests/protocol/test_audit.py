"""The wire format of the audit: headers, runs of events, and events of the version before."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.protocol import audit, audit_mark
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.hashing import murmur2

u64 = st.integers(0, 2**64 - 1)
u32 = st.integers(0, 2**32 - 1)
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
    group_generation=i32,
    number=st.integers(0, 2**62),
    begin_number=i32,
    key=st.none() | st.binary(max_size=9),
    key_hash=u32,
)


def run_of(events: list[audit.Delivery]) -> list[audit.Delivery]:
    """The same events as one run has them: by one member, of one topic, numbered on."""
    first = events[0]
    shared = {name: getattr(first, name) for name in ("group", "member", "topic", "incarnation", "group_generation")}
    return [
        replace(
            one,
            **shared,
            number=first.number + index,
            key_hash=audit.key_hash(None, one.partition) if one.key is None else one.key_hash,
        )
        for index, one in enumerate(events)
    ]


runs = st.lists(deliveries, min_size=1, max_size=6).map(run_of)


@settings(deadline=None)
@given(runs)
def test_run_of_events_survives_the_round_trip(run: list[audit.Delivery]) -> None:
    wire = audit.encode_events(run)
    assert audit.decode_events(wire) == run
    for cut in range(1, len(wire)):
        with pytest.raises(DecodeError, match="audit"):
            audit.decode_events(wire[:cut])
    with pytest.raises(DecodeError, match="1 bytes behind its keys"):
        audit.decode_events(wire + b"x")


@settings(deadline=None)
@given(deliveries)
def test_event_of_version_1_is_decoded(delivery: audit.Delivery) -> None:
    wire = audit.encode_delivery(delivery)
    hashed = audit.key_hash(delivery.key, delivery.partition)
    expected = replace(delivery, group_generation=-1, number=-1, begin_number=-1, key_hash=hashed)
    assert audit.decode_events(wire, delivery.key) == [expected]
    assert audit.decode_delivery(wire, delivery.key) == expected
    for cut in range(1, len(wire)):
        with pytest.raises(DecodeError, match="audit event"):
            audit.decode_events(wire[:cut])


def test_consecutive_events_of_one_origin_store_it_once() -> None:
    base = audit.Delivery(
        generation=0,
        partition=0,
        offset=0,
        producer=1,
        sequence=2,
        fingerprint=3,
        time_ms=4,
        incarnation=5,
        group="g",
        member="m",
        topic="t",
        number=0,
        key=b"k",
    )
    run = [replace(base, partition=index // 10, number=index) for index in range(30)]
    layout = audit.read_layout(audit.encode_events(run))
    assert layout.places == [audit.Place(0, partition, 4, 10) for partition in range(3)]
    assert layout.sender == audit.Sender("g", "m", "t", 5, -1)


def test_malformed_audit_data_is_refused() -> None:
    with pytest.raises(DecodeError, match="version 9"):
        audit.decode_events(b"\x09" + bytes(80))
    with pytest.raises(DecodeError, match="0 bytes"):
        audit.decode_events(b"")
    claims_too_much = audit.RUN.pack(audit.RUN_VERSION, 0, 0, 0, 0, 1 << 31) + audit.encode_names("g", "m", "t")
    with pytest.raises(DecodeError, match="2147483648 events at 0 places do not fit"):
        audit.decode_events(claims_too_much)
    placeless = audit.RUN.pack(audit.RUN_VERSION, 0, 0, 0, 0, 1) + audit.encode_names("", "", "") + bytes(40)
    with pytest.raises(DecodeError, match="its places do not hold 1 events"):
        audit.decode_events(placeless)
    too_many_keys = audit.encode_run(NOBODY, 0, [], b"", [])[: -audit.KEY_COUNT.size] + b"\xff" * 4
    with pytest.raises(DecodeError, match="0 events about 4294967295 keys do not fit"):
        audit.decode_events(too_many_keys)


def about(*numbers: int, keys: dict[int, tuple[int, bytes]]) -> bytes:
    """A run of events with these key numbers."""
    events = b"".join(audit.EVENT.pack(0, audit_mark.NO_MARK, bytes(8), number) for number in numbers)
    told = [audit.numbered_key(number, *keys[number]) for number in sorted(keys)]
    return audit.encode_run(NOBODY, 0, [audit.Place(0, 6, 0, len(numbers))], events, told)


def test_keys_of_a_run_must_be_present_and_in_order() -> None:
    keys = {3: (30, b"c"), 7: (70, b"gg")}
    run = about(7, audit.NO_KEY, 3, 7, keys=keys)
    found = [(one.key, one.key_hash) for one in audit.decode_events(run)]
    assert found == [(b"gg", 70), (None, 6), (b"c", 30), (b"gg", 70)]
    assert audit.key_numbers(run[audit.read_layout(run).events_at : audit.read_layout(run).key_table_at]) == {
        *(3, 7),
        audit.NO_KEY,
    }
    with pytest.raises(DecodeError, match="names key 5, which does not exist"):
        audit.decode_events(about(3, 5, keys=keys))
    first = run.index(audit.KEY.pack(3, 30, 1))
    swapped = run[:first] + audit.KEY.pack(7, 70, 2) + audit.KEY.pack(3, 30, 1) + run[first + 2 * audit.KEY.size :]
    with pytest.raises(DecodeError, match="key 3 of 1 bytes is cut off, or behind key 7"):
        audit.decode_events(swapped)


NOBODY = audit.Sender("", "", "", 1, 1)
NUMBERS = (
    "generation",
    "partition",
    "offset",
    "producer",
    "sequence",
    "fingerprint",
    "time_ms",
    "incarnation",
    "number",
)


def test_fingerprints_of_different_payloads_differ() -> None:
    assert audit.fingerprint(b"a") != audit.fingerprint(b"b")
    assert audit.fingerprint(None) == 0
    assert audit.fingerprint(b"abc") == 0xB4963F3F3FAD7867  # MurmurHash3's own test vector, seed 0


@given(st.none() | st.binary(max_size=9), st.integers(0, 100))
def test_all_events_of_a_key_are_in_one_bucket(key: bytes | None, partition: int) -> None:
    hashed = audit.key_hash(key, partition)
    assert hashed == (partition if key is None else murmur2(key))
    assert audit.bucket_key(audit.bucket_of(hashed)) in [bytes([bucket]) for bucket in range(audit.BUCKETS)]


def test_buckets_nest_in_the_partitions_of_linear_hashing() -> None:
    for hashed, partitions in itertools.product(range(1000), (1, 2, 4, 8, 16)):
        assert audit.bucket_of(hashed) % partitions == hashed % partitions
