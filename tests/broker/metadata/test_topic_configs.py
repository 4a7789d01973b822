"""A topic's configuration overrides the broker's."""

from __future__ import annotations

import pytest

from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.metadata.topic_configs import TopicConfigs
from anabranch.controller.zk import paths, znodes
from anabranch.controller.zk.memory import MemorySession, MemoryZooKeeper
from anabranch.controller.zk.session import ConnectionLoss, SessionExpired


async def configs(**topics: dict[str, str]) -> tuple[TopicConfigs, MemorySession, list[str]]:
    session = await MemoryZooKeeper().connect()
    for name, properties in topics.items():
        await session.create(paths.topic_config(name), znodes.encode_config(properties), make_parents=True)
    found, notified = TopicConfigs(BrokerSettings(), lambda: session), list[str]()
    found.on_change(notified.append)
    return found, session, notified


async def change(session: MemorySession, name: str, **properties: str) -> None:
    named = {key.replace("_", "."): value for key, value in properties.items()}
    await session.set(paths.topic_config(name), znodes.encode_config(named), -1)


async def test_config_is_loaded_once_and_again_on_change() -> None:
    known, session, notified = await configs(t={"retention.ms": "5"})
    assert known.get("t") == known.get("other"), "as far as known"
    assert (await known.load("t")).retention_ms == 5
    await change(session, "t", retention_ms="6")
    assert (await known.load("t")).retention_ms == 5
    await known.reload_topic("t")
    assert (known.get("t").retention_ms, known.properties("t")) == (6, {"retention.ms": "6"})
    assert notified == ["t"]
    await known.reload_topic("t")
    await known.reload_topic("not in use")
    assert notified == ["t"], "nothing is another one now"


async def test_invalid_value_is_ignored() -> None:
    known, _, _ = await configs(t={"retention.ms": "for ever"})
    assert await known.load("t") == known.get("other")


async def test_invalid_value_does_not_hide_the_others(caplog: pytest.LogCaptureFixture) -> None:
    known, _, _ = await configs(t={"cleanup.policy": "compact", "of.another.version": "1", "retention.ms": "5"})
    config = await known.load("t")
    assert (config.cleanup_policy, config.retention_ms) == ("compact", 5)
    assert "ignoring of.another.version of topic t" in caplog.text


async def test_topic_stays_compacted_when_a_default_contradicts_its_lag(caplog: pytest.LogCaptureFixture) -> None:
    known, _, notified = await configs(t={"cleanup.policy": "compact", "min.compaction.lag.ms": "2000"})
    assert (await known.load("t")).min_compaction_lag_ms == 2000
    known.adopt(BrokerSettings(log_cleaner_max_compaction_lag_ms=1000))
    config = known.get("t")
    assert (config.cleanup_policy, config.min_compaction_lag_ms, config.max_compaction_lag_ms) == ("compact", 0, 1000)
    assert notified == ["t"] and "ignoring min.compaction.lag.ms of topic t" in caplog.text


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"version":1,"config":{"retention.ms":5}}'])
async def test_malformed_znode_is_ignored(body: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """One bad configuration must not keep a broker from the leaderships of all other topics."""
    known, session, _ = await configs(t={})
    await session.set(paths.topic_config("t"), body)
    assert await known.load("t") == known.get("other")
    await known.reload()
    assert paths.topic_config("t") in caplog.text


async def test_forgotten_topic_is_loaded_again() -> None:
    known, session, notified = await configs(t={"retention.ms": "5"})
    await known.load("t")
    known.forget_all(["t"])
    assert known.get("t") == known.get("other") and not known.properties("t")
    await change(session, "t", retention_ms="7")
    assert (await known.load("t")).retention_ms == 7
    assert notified == []


async def test_inherited_configs_follow_the_broker() -> None:
    known, _, notified = await configs(own={"min.insync.replicas": "3"}, plain={})
    for name in ("own", "plain"):
        await known.load(name)
    known.adopt(BrokerSettings(min_insync_replicas=2))
    assert (known.get("own").min_insync_replicas, known.get("plain").min_insync_replicas) == (3, 2)
    assert notified == ["plain"]


async def test_lost_connection_is_not_a_missing_config(monkeypatch: pytest.MonkeyPatch) -> None:
    known, session, _ = await configs(t={"retention.ms": "5"})
    get, failures = session.get, [ConnectionLoss(), ConnectionLoss()]

    async def losing(path: str) -> object:
        if failures:
            raise failures.pop()
        return await get(path)

    monkeypatch.setattr(session, "get", losing)
    assert (await known.load("t")).retention_ms == 5


async def test_config_that_an_expired_session_did_not_read_is_read_under_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Logs may have been opened with the defaults, so the listeners are called."""
    known, session, notified = await configs(t={"retention.ms": "5"}, plain={})
    with monkeypatch.context() as expired:

        async def fail(path: str) -> object:
            raise SessionExpired(path)

        expired.setattr(session, "get", fail)
        for name in ("t", "plain"):
            with pytest.raises(SessionExpired):
                await known.load(name)
    await known.reload()
    assert known.get("t").retention_ms == 5
    assert notified == ["t"]


async def test_listeners_are_called_for_a_config_that_is_read_late(monkeypatch: pytest.MonkeyPatch) -> None:
    known, session, notified = await configs(t={"retention.ms": "5"})
    with monkeypatch.context() as expired:

        async def fail(path: str) -> object:
            raise SessionExpired(path)

        expired.setattr(session, "get", fail)
        with pytest.raises(SessionExpired):
            await known.load("t")
    await known.load("t")
    assert notified == ["t"]
