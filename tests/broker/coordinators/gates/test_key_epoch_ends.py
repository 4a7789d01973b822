"""Segment ends in leaders' responses; `test_group_gates` tests the requests."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.coordinators.gates import key_epoch_ends
from anabranch.broker.coordinators.gates.gated_topic import LeaderAnswer
from anabranch.broker.coordinators.gates.key_epoch_ends import KeyEpochEnds, answers_of
from anabranch.broker.metadata.metadata_cache import BrokerImage, MetadataCache
from anabranch.protocol.apis.offset_for_leader_epoch import EpochEndOffset
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.lineage import KeyEpoch
from tests.broker.coordinators.gates.test_gated_topic import GatedTopic, image
from tests.clients.peer import serve

CUT = KeyEpoch(0, 0)


def row(end: int, deliverable: int = -1, *, start: int = 2, error: ErrorCode = ErrorCode.NONE) -> EpochEndOffset:
    return EpochEndOffset(
        error_code=error, partition=0, end_offset=end, deliverable_end=deliverable, log_start_offset=start
    )


def test_leader_answer_is_kept_with_its_epoch() -> None:
    assert answers_of([row(10, 8)], [CUT], 3) == LeaderAnswer(3, 2, {CUT: 10}, {CUT: 8})
    assert answers_of([row(4)], [None], 3) == LeaderAnswer(3, 2, {}, {}), "where the log begins"


def test_incomplete_answer_is_discarded() -> None:
    assert answers_of([], [CUT], 3) is None
    assert answers_of([row(10, 8), row(-1, error=ErrorCode.OFFSET_NOT_AVAILABLE)], [CUT, KeyEpoch(0, 1)], 3) is None
    assert answers_of([row(-1)], [CUT], 3) is None
    assert answers_of([row(10, 8, start=-1)], [CUT], 3) is None, "a broker that does not know the question"


async def test_missing_leader_leaves_key_epochs_unknown() -> None:
    topic, ends = GatedTopic(image(1, 2)), KeyEpochEnds(BrokerSettings(), MetadataCache())
    await asyncio.gather(ends.ask(topic, [0, 1]), ends.ask(topic, [0]))
    assert topic.unknown_key_epochs() == [0, 1]
    await ends.close()


async def test_silent_leader_is_not_waited_for_as_long_as_a_request_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later questions about the topic wait for the one under way, also those about partitions of other leaders."""
    monkeypatch.setattr(key_epoch_ends, "ANSWER_TIMEOUT_MS", 20)
    broker = BrokerSettings(request_timeout_ms=3_600_000)

    async def answers(request: Any) -> Any:
        await asyncio.Event().wait()

    async with asyncio.timeout(20), serve(answers) as peer:
        metadata = MetadataCache()
        found = BrokerImage(1, "127.0.0.1", peer.port, None, 0)
        metadata.image = dataclasses.replace(metadata.image, brokers={1: found})
        topic, ends = GatedTopic(image(1, 2)), KeyEpochEnds(broker, metadata)
        await ends.ask(topic, [0])
        assert peer.seen and topic.unknown_key_epochs() == [0, 1]
        await ends.close()
