"""Goal: what checks passwords is what stands in ZooKeeper, as it is now, for all users and for the one that changed."""

from __future__ import annotations

import pytest

from anabranch.broker import registration, scram
from anabranch.broker.config_changes import change_config
from anabranch.broker.security.credentials import ScramCredentials
from anabranch.controller.zk.memory import MemoryZooKeeper
from anabranch.controller.zk.session import ZkSession

ALICE = scram.Upsertion("al/ice é", 1, 4096, b"salt", b"salted")


async def joined() -> ZkSession:
    session = await MemoryZooKeeper().connect()
    await registration.prepare_parents(session)
    return session


async def test_all_users_are_read_and_then_those_that_change() -> None:
    session, credentials = await joined(), ScramCredentials()
    await credentials.load(session)
    assert credentials.of("SCRAM-SHA-256", "al/ice é") is None
    await scram.alter(session, [ALICE], [])
    await credentials.changed(session, "al%2Fice%20%C3%A9")
    found = credentials.of("SCRAM-SHA-256", "al/ice é")
    assert found is not None and (found.salt, found.iterations) == (b"salt", 4096)
    assert credentials.of("SCRAM-SHA-512", "al/ice é") is None
    other = ScramCredentials()
    await other.load(session)
    assert other.of("SCRAM-SHA-256", "al/ice é") == found


async def test_a_user_that_is_removed_is_forgotten() -> None:
    session, credentials = await joined(), ScramCredentials()
    await scram.alter(session, [ALICE], [])
    await credentials.load(session)
    await scram.alter(session, [], [scram.Deletion("al/ice é", 1)])
    await credentials.changed(session, "al%2Fice%20%C3%A9")
    assert credentials.of("SCRAM-SHA-256", "al/ice é") is None
    await scram.alter(session, [ALICE], [])
    await credentials.load(session)
    await session.delete("/config/users/al%2Fice%20%C3%A9")
    await credentials.load(session)
    assert credentials.of("SCRAM-SHA-256", "al/ice é") is None


async def test_a_credential_that_makes_no_sense_is_left_out_and_not_quoted(caplog: pytest.LogCaptureFixture) -> None:
    session, credentials = await joined(), ScramCredentials()
    await change_config(session, "users/bob", lambda _: {"SCRAM-SHA-256": "salt=planted"})
    await credentials.load(session)
    assert credentials.of("SCRAM-SHA-256", "bob") is None
    assert "'bob' makes no sense" in caplog.text
    assert "planted" not in caplog.text
