"""A cluster's features in ZooKeeper, as seen by a node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from anabranch.broker.metadata.features import FinalizedFeatures, incompatible, supported_features
from anabranch.broker.profiles.profile import profile_for
from anabranch.controller.features import RESHARD
from anabranch.controller.model import Features
from anabranch.controller.zk import paths, znodes
from anabranch.controller.zk.memory import MemorySession, MemoryZooKeeper


@asynccontextmanager
async def watched(withheld: str = "") -> AsyncIterator[tuple[FinalizedFeatures, MemorySession]]:
    session = await MemoryZooKeeper().connect()
    found = FinalizedFeatures(withheld)
    await found.watch(session)
    try:
        async with asyncio.timeout(60):
            yield found, session
    finally:
        await found.stop()


async def until_level(found: FinalizedFeatures, level: int) -> None:
    while found.level(RESHARD) != level:  # noqa: ASYNC110 what a node sees of ZooKeeper is looked at from outside
        await asyncio.sleep(0.001)


def test_withheld_features_are_not_supported() -> None:
    assert supported_features("", profile_for("3.9")) == {RESHARD: (1, 1)}
    assert supported_features(f"other,{RESHARD}", profile_for("3.9")) == {}


def test_unsupported_feature_levels_are_named() -> None:
    assert incompatible(Features({RESHARD: 1}), supported_features("", profile_for("3.9"))) == []
    assert incompatible(Features({RESHARD: 2}), supported_features("", profile_for("3.9"))) == [f"{RESHARD} at level 2"]
    assert incompatible(Features({"unheard.of": 1}), supported_features("", profile_for("3.9"))) == [
        "unheard.of at level 1"
    ]


async def test_feature_levels_follow_the_znode() -> None:
    async with watched() as (found, session):
        assert found.level(RESHARD) == 0
        await session.create(paths.FEATURE, znodes.encode_feature({RESHARD: 1}))
        await until_level(found, 1)
        await session.set(paths.FEATURE, znodes.encode_feature({}), -1)
        await until_level(found, 0)
        await session.delete(paths.FEATURE)
        await session.create(paths.FEATURE, znodes.encode_feature({RESHARD: 1}))
        await until_level(found, 1)


async def test_malformed_feature_znode_keeps_the_previous_levels(caplog: pytest.LogCaptureFixture) -> None:
    async with watched() as (found, session):
        await session.create(paths.FEATURE, znodes.encode_feature({RESHARD: 1}))
        await until_level(found, 1)
        await session.set(paths.FEATURE, b"{", -1)
        while "cannot read the finalized features" not in caplog.text:  # noqa: ASYNC110 see above
            await asyncio.sleep(0.001)
        assert found.level(RESHARD) == 1


async def test_unsupported_finalized_feature_is_reported() -> None:
    async with watched(withheld=RESHARD) as (found, session):
        reported: asyncio.Queue[list[str]] = asyncio.Queue()
        found.too_old = reported.put_nowait
        await session.create(paths.FEATURE, znodes.encode_feature({RESHARD: 1}))
        assert await reported.get() == [f"{RESHARD} at level 1"]
