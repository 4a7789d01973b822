"""The last stored state of an offset is restored after a restart."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.broker.coordinators.share_partitions.in_flight import RecordState, StateBatch
from anabranch.broker.coordinators.share_partitions.share_state import (
    SNAPSHOT,
    UNCHANGED,
    UPDATE,
    ShareKey,
    ShareState,
    combine,
    decode_key,
    encode_key,
    encode_snapshot,
    encode_update,
    restore,
)
from anabranch.protocol.errors import DecodeError, ErrorCode, KafkaError

KEY = ShareKey("g", bytes(range(16)), 3)
FATES = st.tuples(
    st.integers(0, 30),
    st.integers(0, 6),
    st.sampled_from([RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED]),
    st.integers(1, 3),
)
SAID = st.lists(FATES.map(lambda one: StateBatch(one[0], one[0] + one[1], one[2], one[3])), max_size=12)


@given(said=SAID, start=st.integers(0, 20))
def test_latest_state_of_each_offset_is_kept(said: list[StateBatch], start: int) -> None:
    expected = {offset: (one.state, one.delivery_count) for one in said for offset in range(one.first, one.last + 1)}
    result: list[StateBatch] = []
    for one in said:
        result = combine(result, [one], start)
    assert result == combine([], said, start)
    found = {offset: (one.state, one.delivery_count) for one in result for offset in range(one.first, one.last + 1)}
    assert found == {offset: fate for offset, fate in expected.items() if offset >= start}
    assert all(a.last < b.first for a, b in itertools.pairwise(result))


def test_adjacent_ranges_of_one_state_are_merged() -> None:
    done, other = RecordState.ACKNOWLEDGED, StateBatch(6, 7, RecordState.ACKNOWLEDGED, 2)
    assert combine([StateBatch(0, 3, done, 1), other], [StateBatch(4, 5, done, 1)], 0) == [
        StateBatch(0, 5, done, 1),
        other,
    ]


@given(said=SAID)
def test_state_is_restored_from_its_records(said: list[StateBatch]) -> None:
    state = ShareState(state_epoch=2, leader_epoch=4, start_offset=1, snapshot_epoch=7, created_ms=11)
    again = restore(None, SNAPSHOT, encode_snapshot(state, 12))
    assert (again.created_ms, again.snapshot_epoch, again.delivery_complete_count) == (11, 7, -1)
    update = encode_update(state, UNCHANGED, said, 5, 6)
    state.take(UNCHANGED, said, 5, 6)
    again = restore(again, UPDATE, update)
    assert again.updates == 1
    for name in ("state_epoch", "leader_epoch", "start_offset", "batches", "delivery_complete_count"):
        assert getattr(again, name) == getattr(state, name), name


def test_start_offset_does_not_decrease_on_a_repeated_write() -> None:
    state = ShareState(leader_epoch=4, start_offset=3)
    state.take(5, [], 0, 4)  # it was stored, and the leader was not told
    state.take(4, [StateBatch(4, 4, RecordState.AVAILABLE, 1), StateBatch(7, 7, RecordState.ACKNOWLEDGED, 1)], 1, 4)
    assert (state.start_offset, state.batches) == (5, [StateBatch(7, 7, RecordState.ACKNOWLEDGED, 1)])


def test_keys_distinguish_snapshots_and_updates() -> None:
    assert decode_key(encode_key(KEY, SNAPSHOT)) == (KEY, SNAPSHOT)
    assert decode_key(encode_key(KEY, UPDATE)) == (KEY, UPDATE)
    assert decode_key(b"\x00\x09") is None
    for broken in (b"", b"\x00"):
        with pytest.raises(DecodeError):
            decode_key(broken)


def test_key_bytes_equal_kafkas() -> None:
    """ShareSnapshotKey of kafka-share-coordinator 4.2: version, group, topic id, partition."""
    assert encode_key(KEY, SNAPSHOT) == b"\x00\x00" + b"\x00\x01g" + bytes(range(16)) + b"\x00\x00\x00\x03"


def test_malformed_state_is_refused() -> None:
    with pytest.raises(DecodeError, match="an update without a snapshot"):
        restore(None, UPDATE, encode_update(ShareState(), 0, [], -1, 0))
    bad = encode_snapshot(ShareState(batches=[StateBatch(0, 0, 9, 1)]), 0)  # type: ignore[arg-type]
    with pytest.raises(DecodeError, match="9"):
        restore(None, SNAPSHOT, bad)


def test_stale_epoch_is_fenced() -> None:
    state = ShareState(state_epoch=3, leader_epoch=5)
    state.fence(leader_epoch=5, state_epoch=3)
    for leader, epoch, code in ((4, 3, ErrorCode.FENCED_LEADER_EPOCH), (5, 2, ErrorCode.FENCED_STATE_EPOCH)):
        with pytest.raises(KafkaError) as refused:
            state.fence(leader_epoch=leader, state_epoch=epoch)
        assert refused.value.code is code
