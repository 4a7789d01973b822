"""Replay: the journal of a partition, folded into its groups."""

from __future__ import annotations

import random

import pytest

from anabranch.broker.coordinators.classic_groups.classic_group import ClassicGroup
from anabranch.broker.coordinators.classic_groups.group_state import EMPTY, STABLE, GroupLimits
from anabranch.broker.coordinators.groups.group_shards import GroupEntry, Replay
from anabranch.broker.coordinators.offsets.committed_offsets import Offsets
from anabranch.broker.coordinators.runtime.journal import JournalRecord, TransactionEnd
from anabranch.protocol.internal_topics import (
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_group,
    encode_offset,
)
from tests.broker.coordinators.driver import Driver


def replayed(*entries: JournalRecord | TransactionEnd) -> dict[str, GroupEntry]:
    replay = Replay()
    for entry in entries:
        replay.apply(entry)
    return replay.slots(3, GroupLimits(), random.Random(1), 50)


def offset_put(place: int, offset: int | None, *, group: str = "g", producer_id: int = -1) -> JournalRecord:
    written = None
    if offset is not None:
        written = encode_offset(OffsetCommitValue(offset=offset, metadata="", commit_timestamp=1))
    return JournalRecord(OffsetCommitKey(group=group, topic="t", partition=0), written, place, producer_id)


def group_value() -> bytes:
    drive = Driver()
    drive.stable(2)
    return encode_group(drive.group.snapshot({one.member_id: b"x" for one in drive.group.members}))


def test_last_record_of_a_key_is_applied() -> None:
    slots = replayed(offset_put(0, 5), offset_put(1, 6), JournalRecord(GroupMetadataKey(group="g"), group_value(), 2))
    slot = slots["g"]
    assert (slot.partition, slot.offsets.offset_of(("t", 0)), slot.group.state) == (3, 6, STABLE)
    assert slot.next_deadline() == 50 + 10_000


def test_tombstones_remove_offsets_and_groups() -> None:
    assert replayed(offset_put(0, 5), offset_put(1, None)) == {}
    key = GroupMetadataKey(group="g")
    slots = replayed(JournalRecord(key, group_value(), 0), JournalRecord(key, None, 1), offset_put(2, 5))
    assert slots["g"].group.state is EMPTY and slots["g"].group.generation == 0


def test_replay_keeps_open_transactions_and_applies_ended_ones() -> None:
    slots = replayed(
        offset_put(0, 5, producer_id=7),
        offset_put(1, 6, group="other", producer_id=7),
        offset_put(2, 7, group="open", producer_id=8),
        TransactionEnd(7, commit=True),
    )
    assert slots["g"].offsets.offset_of(("t", 0)) == 5 and slots["other"].offsets.offset_of(("t", 0)) == 6
    assert slots["open"].offsets.unstable(("t", 0)) and slots["open"].offsets.offset_of(("t", 0)) == -1
    assert replayed(offset_put(0, 5, producer_id=7), TransactionEnd(7, commit=False)) == {}


def test_marker_is_applied_to_the_groups_of_its_transaction_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The load of 1,000 groups and 20,000 markers held the event loop for half a minute."""
    settled = 0
    settle = Offsets.settle

    def counted(offsets: Offsets, producer_id: int, *, commit: bool) -> object:
        nonlocal settled
        settled += 1
        return settle(offsets, producer_id, commit=commit)

    monkeypatch.setattr(Offsets, "settle", counted)
    others = [offset_put(place, 5, group=f"other-{place}") for place in range(100)]
    slots = replayed(
        *others, offset_put(100, 6, producer_id=7), TransactionEnd(7, commit=True), TransactionEnd(8, True)
    )
    assert slots["g"].offsets.offset_of(("t", 0)) == 6
    assert settled == 1


def test_entry_with_writes_or_pending_members_is_not_vacant() -> None:
    slot = GroupEntry(ClassicGroup("g", GroupLimits(), random.Random(1)), 0)
    assert slot.vacant
    slot.writes_in_flight = 1
    assert not slot.vacant
    slot.writes_in_flight = 0
    slot.group.members.pending["m"] = 5
    assert not slot.vacant and slot.next_deadline() == 5


def test_gated_partition_is_unread_in_a_stable_group_without_open_commits() -> None:
    value = JournalRecord(GroupMetadataKey(group="g"), group_value(), 0)
    slot = replayed(value)["g"]
    assert slot.is_unread(bytes(16), "t", 0)
    slot.offsets.begin([("t", 0)])
    assert not slot.is_unread(bytes(16), "t", 0) and slot.is_unread(bytes(16), "t", 1)
    slot.offsets.end([("t", 0)])
    slot.classic.state = EMPTY
    assert not slot.is_unread(bytes(16), "t", 0)
    open_transaction = replayed(value, offset_put(1, 5, producer_id=7))["g"]
    assert not open_transaction.is_unread(bytes(16), "t", 0)
