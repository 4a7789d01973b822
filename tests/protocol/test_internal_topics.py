"""Records of the internal topics, byte for byte as Kafka writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol import internal_topics as topics
from anabranch.protocol.errors import DecodeError

OFFSET_KEY = "000100016700066f726465727300000003"
OFFSET_VALUE_V3 = "0003000000000000002a0000000500046e6f746500000190b2c3d4e5"
OFFSET_VALUE_V1 = "0001000000000000002a00046e6f746500000190b2c3d4e500000190b2c3d4ff"
OFFSET_VALUE_V0 = "0000000000000000002a00046e6f746500000190b2c3d4e5"
OFFSET_VALUE_V4 = "0004000000000000002a00000005056e6f746500000190b2c3d4e500"
GROUP_KEY = "0002000167"
GROUP_VALUE_V3 = (
    "0003" "0008" "636f6e73756d6572" "00000007" "0005" "72616e6765" "0003" "632d31" "00000190b2c3d4e5"
    "00000001"
    "0003" "632d31" "0002" "6931" "0001" "63" "000a" "2f3132372e302e302e31" "000493e0" "00002710"
    "00000002" "0102" "00000001" "ff"
)  # fmt: skip
EMPTY_GROUP_VALUE_V3 = "00030008636f6e73756d657200000008ffffffffffffffffffffffff00000000"

offset = topics.OffsetCommitValue(offset=42, leader_epoch=5, metadata="note", commit_timestamp=0x190B2C3D4E5)
group = topics.GroupMetadataValue(
    protocol_type="consumer",
    generation=7,
    protocol="range",
    leader="c-1",
    current_state_timestamp=0x190B2C3D4E5,
    members=[
        topics.GroupMetadataMember(
            member_id="c-1",
            group_instance_id="i1",
            client_id="c",
            client_host="/127.0.0.1",
            rebalance_timeout=300000,
            session_timeout=10000,
            subscription=b"\x01\x02",
            assignment=b"\xff",
        )
    ],
)


def test_keys_equal_kafka_bytes() -> None:
    offset_key = topics.OffsetCommitKey(group="g", topic="orders", partition=3)
    assert topics.encode_key(offset_key).hex() == OFFSET_KEY
    assert topics.encode_key(topics.GroupMetadataKey(group="g")).hex() == GROUP_KEY
    assert topics.decode_key(bytes.fromhex(OFFSET_KEY)) == offset_key
    assert topics.decode_key(bytes.fromhex("0000" + OFFSET_KEY[4:])) == offset_key, "v0 is the same"
    assert topics.decode_key(bytes.fromhex(GROUP_KEY)) == topics.GroupMetadataKey(group="g")


@given(
    st.lists(
        st.tuples(
            st.tuples(st.sampled_from(["t", "orders"]), st.integers(0, 2**31 - 1)),
            st.integers(-(2**63), 2**63 - 1),
            st.tuples(
                st.integers(-1, 3), st.sampled_from(["", "n\u00e9"]), st.integers(1, 2), st.sampled_from([-1, 1 << 40])
            ),
        )
    )
)
def test_encoded_offset_records_equal_single_ones(
    written: list[tuple[tuple[str, int], int, tuple[int, str, int, int]]],
) -> None:
    """What a record has in common with the one before is encoded once."""
    encoder = topics.OffsetRecordEncoder("group")
    for (topic, index), offset, common in written:
        epoch, metadata, committed_ms, expires_ms = common
        key = topics.OffsetCommitKey(group="group", topic=topic, partition=index)
        content = topics.OffsetCommitValue(
            offset=offset,
            leader_epoch=epoch,
            metadata=metadata,
            commit_timestamp=committed_ms,
            expire_timestamp=expires_ms,
        )
        assert encoder.key(topic, index) == topics.encode_key(key)
        assert encoder.value(offset, common) == topics.encode_offset(content)


def test_key_of_unknown_version_is_ignored() -> None:
    assert topics.decode_key(bytes.fromhex("0063000167")) is None


def test_offset_values_equal_kafka_bytes() -> None:
    assert topics.encode_offset(offset).hex() == OFFSET_VALUE_V3
    assert topics.decode_offset(bytes.fromhex(OFFSET_VALUE_V3)) == offset
    assert topics.decode_offset(bytes.fromhex(OFFSET_VALUE_V4)) == offset
    expiring = topics.OffsetCommitValue(
        offset=42, metadata="note", commit_timestamp=0x190B2C3D4E5, expire_timestamp=0x190B2C3D4FF
    )
    assert topics.encode_offset(expiring).hex() == OFFSET_VALUE_V1
    assert topics.decode_offset(bytes.fromhex(OFFSET_VALUE_V1)) == expiring
    assert topics.decode_offset(bytes.fromhex(OFFSET_VALUE_V0)).leader_epoch == -1


def test_group_values_equal_kafka_bytes() -> None:
    assert topics.encode_group(group).hex() == GROUP_VALUE_V3
    assert topics.decode_group(bytes.fromhex(GROUP_VALUE_V3)) == group
    empty = topics.GroupMetadataValue(protocol_type="consumer", generation=8, protocol=None, leader=None, members=[])
    assert topics.encode_group(empty).hex() == EMPTY_GROUP_VALUE_V3
    assert topics.decode_group(bytes.fromhex(EMPTY_GROUP_VALUE_V3)) == empty


@pytest.mark.parametrize("wire", ["", "00", "0005" + OFFSET_VALUE_V3[4:], "ffff", OFFSET_VALUE_V3[:-2]])
def test_malformed_offset_value_is_refused(wire: str) -> None:
    with pytest.raises(DecodeError):
        topics.decode_offset(bytes.fromhex(wire))


def test_malformed_key_is_refused() -> None:
    for wire in ("", "00", OFFSET_KEY[:-2]):
        with pytest.raises(DecodeError):
            topics.decode_key(bytes.fromhex(wire))


TRANSACTION_KEY = "0000000474782d31"
ONGOING_V0 = (
    "0000" "00000000000003e8" "0003" "0000ea60" "01"
    "00000002"
    "0006" "6f7264657273" "00000002" "00000000" "00000002"
    "0012" "5f5f636f6e73756d65725f6f666673657473" "00000001" "00000007"
    "00000190b2c3d4e5" "00000190b2c3d4ff"
)  # fmt: skip
ONGOING_V1 = (
    "0001" "00000000000003e8" "0003" "0000ea60" "01"
    "03"
    "07" "6f7264657273" "03" "00000000" "00000002" "00"
    "13" "5f5f636f6e73756d65725f6f666673657473" "02" "00000007" "00"
    "00000190b2c3d4e5" "00000190b2c3d4ff" "00"
)  # fmt: skip
EMPTY_V0 = "000000000000000003e800000000ea6000ffffffff00000190b2c3d4e5ffffffffffffffff"

ongoing = topics.TransactionValue(
    producer_id=1000,
    producer_epoch=3,
    transaction_timeout_ms=60000,
    transaction_status=1,
    transaction_partitions=[
        topics.TransactionPartitions(topic="orders", partition_ids=[0, 2]),
        topics.TransactionPartitions(topic="__consumer_offsets", partition_ids=[7]),
    ],
    transaction_last_update_timestamp_ms=0x190B2C3D4E5,
    transaction_start_timestamp_ms=0x190B2C3D4FF,
)
empty = topics.TransactionValue(
    producer_id=1000,
    producer_epoch=0,
    transaction_timeout_ms=60000,
    transaction_status=0,
    transaction_partitions=None,
    transaction_last_update_timestamp_ms=0x190B2C3D4E5,
    transaction_start_timestamp_ms=-1,
)


def test_transactions_equal_kafka_bytes() -> None:
    assert topics.encode_transaction_key("tx-1").hex() == TRANSACTION_KEY
    assert topics.decode_transaction_key(bytes.fromhex(TRANSACTION_KEY)) == "tx-1"
    assert topics.encode_transaction(ongoing).hex() == ONGOING_V0
    assert topics.encode_transaction(empty).hex() == EMPTY_V0
    assert topics.decode_transaction(bytes.fromhex(ONGOING_V0)) == ongoing
    assert topics.decode_transaction(bytes.fromhex(EMPTY_V0)) == empty


def test_transaction_of_newer_version_is_refused() -> None:
    assert topics.decode_transaction(bytes.fromhex(ONGOING_V1)) == ongoing, "the flexible form is read"
    assert topics.decode_transaction_key(bytes.fromhex("0001000474782d31")) is None
    with pytest.raises(DecodeError, match="schema version 2"):
        topics.decode_transaction(bytes.fromhex("0002" + ONGOING_V1[4:]))
    with pytest.raises(DecodeError):
        topics.decode_transaction(bytes.fromhex(ONGOING_V0)[:-1])
