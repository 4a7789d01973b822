"""Commits contain only offsets of the current assignment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from anabranch.clients.consumer.classic_group_session import ClassicGroupSession
from anabranch.clients.consumer.core import ConsumerCore
from anabranch.clients.consumer.delivery_audit import DeliveryAudit
from anabranch.clients.consumer.offset_committer import OffsetCommitter
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition

FIRST, SECOND = TopicPartition("a", 0), TopicPartition("a", 1)


class Session:
    """Takes every commit."""

    def __init__(self) -> None:
        self.taken: list[dict[TopicPartition, int]] = []

    async def commit(
        self, offsets: Mapping[TopicPartition, int], check_owned: Callable[[], None], topic_ids: Mapping[str, bytes]
    ) -> None:
        check_owned()
        self.taken.append(dict(offsets))


class Audit:
    """Something happens while it is stored."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self.flush_calls = 0
        self._meanwhile = meanwhile

    async def flush(self) -> None:
        self.flush_calls += 1
        self._meanwhile()


def core() -> ConsumerCore:
    one = ConsumerCore(
        ["a"], None, ordered=True, auto_commit_s=None, audited=True, holds_back=lambda partition, generation: False
    )
    one.assignment.replace([FIRST, SECOND])
    for partition in (FIRST, SECOND):
        one.assignment[partition].begin(3, committed=3)
    return one


async def commit(one: ConsumerCore, session: Session, meanwhile: Callable[[], object]) -> None:
    audit = Audit(meanwhile)
    committer = OffsetCommitter(one, cast(ClassicGroupSession, session), cast(DeliveryAudit, cast(Any, audit)))
    try:
        await committer.store({FIRST: 5})
    finally:
        assert audit.flush_calls == 1


@pytest.mark.parametrize("given", [[SECOND], [FIRST, SECOND]], ids=["away", "anew"])
async def test_revoked_or_reassigned_partition_is_not_committed(given: list[TopicPartition]) -> None:
    one, session = core(), Session()
    with pytest.raises(KafkaError) as refused:
        await commit(one, session, lambda: one.assignment.replace(given))
    assert refused.value.code is ErrorCode.ILLEGAL_GENERATION
    assert session.taken == []


async def test_kept_partition_is_committed_despite_seek_or_added_partition() -> None:
    """A seek is not a rebalance, nor is an added partition."""
    one, session = core(), Session()
    await commit(one, session, lambda: one.assignment[FIRST].seek(0))
    await commit(one, session, lambda: one.assignment.adjust([FIRST, SECOND, TopicPartition("a", 2)]))
    assert session.taken == [{FIRST: 5}, {FIRST: 5}]
    assert one.assignment[FIRST].committed == 5
