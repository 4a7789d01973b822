"""Committed offsets of many partitions: other requests run while the response is built from one moment's offsets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest

from anabranch.broker.coordinators.offsets.committed_offsets import CommittedOffset
from anabranch.broker.handlers.offset_fetch import offset_fetch
from anabranch.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.broker.coordinators.world import GroupWorld, fetch_offsets_request, group_world
from tests.broker.yields import context, while_it_yields, yields_of

TOPICS: Final = [f"wide-{number:02}" for number in range(30)]
IN_A_TOPIC: Final = 150
VERSIONS: Final = (7, 8)


def request(version: int) -> OffsetFetchRequest:
    indexes = list(range(IN_A_TOPIC))
    if version < 8:
        old = [OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name in TOPICS]
        return OffsetFetchRequest(group_id="g", topics=old, require_stable=True)
    topics = [OffsetFetchRequestTopics(name=name, partition_indexes=indexes) for name in TOPICS]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)], require_stable=True)


def offsets_in(response: OffsetFetchResponse, version: int) -> list[int]:
    topics = response.groups[0].topics if version >= 8 else response.topics
    assert [topic.name for topic in topics] == TOPICS
    return [row.committed_offset for topic in topics for row in topic.partitions]


def commit(world: GroupWorld, offset: int, place: int) -> None:
    everything = [(name, index) for name in TOPICS for index in range(IN_A_TOPIC)]
    values = {one: CommittedOffset(offset=offset, commit_timestamp_ms=0) for one in everything}
    world.groups(1).table.find_or_create("g").offsets.commit_all(values, place)


@asynccontextmanager
async def committed_world() -> AsyncIterator[GroupWorld]:
    async with group_world() as world:
        commit(world, 5, 0)
        yield world


@pytest.mark.parametrize("version", VERSIONS)
async def test_fetch_of_many_offsets_yields(version: int) -> None:
    async with committed_world() as world:
        ctx = context(world[1].services, version)
        response, others = await yields_of(offset_fetch(ctx, request(version)))
        assert offsets_in(response, version) == [5] * (len(TOPICS) * IN_A_TOPIC) and others >= len(TOPICS) // 2
        _, others = await yields_of(offset_fetch(ctx, fetch_offsets_request(version, [0, 1])))
        assert others == 0, "a short fetch is answered at once"


@pytest.mark.parametrize("version", VERSIONS)
async def test_commit_while_a_fetch_yields_is_not_seen_in_part(version: int) -> None:
    async with committed_world() as world:
        working = offset_fetch(context(world[1].services, version), request(version))
        response = await while_it_yields(working, lambda: commit(world, 6, 9000))
        assert set(offsets_in(response, version)) == {5}
        assert world.groups(1).offsets.of("g").offset_of((TOPICS[0], 0)) == 6
